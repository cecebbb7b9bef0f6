#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/unique_fd.h"

namespace {

using ferry::UniqueFd;
using Sendmsg = ssize_t (*)(int, const msghdr*, int);

constexpr unsigned short kAll = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET;

// A question, with an attribute that is too short if it is about all connections. The kernel looks at no attribute of
// the question which ones it is about to forget.
struct Question {
  nlmsghdr header;
  nfgenmsg family;
  nlattr mark;
  char one_byte_of_four[4];
};

// ferry-criu-dump.so as CRIU has it, in a network namespace of the test's own.
struct Conntrack : testing::Test {
  void SetUp() override {
    library = ::dlopen(DUMP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    sendmsg = reinterpret_cast<Sendmsg>(::dlsym(library, "sendmsg"));
    ASSERT_NE(sendmsg, nullptr);
  }
  void TearDown() override {
    if (library != nullptr) ::dlclose(library);
  }

  // Runs `test` in a new network namespace that tracks connections. False: there can be none here.
  template <typename Test>
  bool in_namespace(Test test) {
    bool can = false;
    std::thread([&] {
      can = ::unshare(CLONE_NEWNET) == 0 && count() == 0;
      if (can) test();
    }).join();
    return can;
  }
  static int count() {
    std::ifstream file("/proc/sys/net/netfilter/nf_conntrack_count");
    int value = -1;
    file >> value;
    return value;
  }

  // The kernel's answer to CRIU's question, an error; 0: that is all.
  int answer(unsigned short type, unsigned short flags = NLM_F_REQUEST | NLM_F_DUMP) {
    Question question{{sizeof question, type, flags, 1, 0}, {}, {5, CTA_MARK}, {}};
    iovec content{&question, sizeof question};
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    msghdr message{};
    message.msg_name = &kernel;
    message.msg_namelen = sizeof kernel;
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
    EXPECT_EQ(sendmsg(socket.get(), &message, 0), static_cast<ssize_t>(sizeof question));
    EXPECT_EQ(question.header.nlmsg_type, type);
    struct {
      nlmsghdr header;
      int error;
      char rest[8192];
    } reply{};
    EXPECT_GT(::recv(socket.get(), &reply, sizeof reply, 0), 0);
    EXPECT_TRUE(reply.header.nlmsg_type == NLMSG_ERROR || reply.header.nlmsg_type == NLMSG_DONE);
    return -reply.error;
  }

  void* library = nullptr;
  Sendmsg sendmsg = nullptr;
};

TEST_F(Conntrack, IsNotSearchedWhereNothingIsTracked) {
  const bool can = in_namespace([this] {
    EXPECT_EQ(answer(kAll), 0);
    EXPECT_EQ(answer(kAll, NLM_F_REQUEST), ERANGE) << "CRIU asks for all";
  });
  if (!can) GTEST_SKIP() << "no network namespace that tracks connections";
}

TEST_F(Conntrack, IsSearchedWhereAConnectionIsTracked) {
  const bool can = in_namespace([this] {
    ASSERT_EQ(
        std::system(
            "ip link set lo up && nft 'table ip t { chain c { type filter hook output priority 0; "
            "ct state new accept; }; }'"),
        0);
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::sendto(socket.get(), "", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
              1);
    ASSERT_EQ(count(), 1);
    EXPECT_EQ(answer(kAll), ERANGE);
  });
  if (!can) GTEST_SKIP() << "no network namespace that tracks connections";
}

}  // namespace
