#include "host/proc/broken_dump.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "connected.h"
#include "host/proc/subprocess.h"
#include "host/proc/tcp_sockets.h"

namespace ferry::host {
namespace {

int option(const UniqueFd& socket, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::getsockopt(socket.get(), level, name, &value, &length), 0);
  return value;
}

TEST(BrokenDump, AConnectionInRepairModeGoesOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Connected program;
  const auto sockets = tcp_sockets_of(program.pid);
  ASSERT_EQ(sockets.size(), 1u);
  constexpr int kOn = 1;
  ASSERT_EQ(::setsockopt(sockets[0].get(), IPPROTO_TCP, TCP_REPAIR, &kOn, sizeof kOn), 0);
  char byte = 'x';
  ASSERT_EQ(::recv(sockets[0].get(), &byte, 1, MSG_DONTWAIT), -1);
  ASSERT_EQ(errno, EPERM);
  end_repair(program.pid);
  EXPECT_EQ(option(sockets[0], IPPROTO_TCP, TCP_REPAIR), 0);
  EXPECT_NE(option(sockets[0], SOL_SOCKET, SO_REUSEADDR), 0);
  EXPECT_EQ(::send(sockets[0].get(), &byte, 1, 0), 1);
  EXPECT_TRUE(program.hears_of_the_end(10000));
  EXPECT_EQ(::recv(program.ours.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(BrokenDump, AConnectionThatCriuHasNotTouchedIsLeftAsItIs) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Connected program;
  end_repair(program.pid);
  EXPECT_EQ(option(tcp_sockets_of(program.pid).at(0), SOL_SOCKET, SO_REUSEADDR), 0);
}

// A network of our own, in which this test takes the part of ferryd.
class NetworkLock : public testing::Test {
 protected:
  NetworkLock() : former_(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) {}
  ~NetworkLock() override { ::setns(former_.get(), CLONE_NEWNET); }

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    in(::getpid(), "ip link set dev lo up");
    if (run({{"iptables", "-S"}, {}, {}}).status == 127) GTEST_SKIP() << "needs iptables";
  }

  static std::string in(pid_t pid, const std::string& commands) {
    const Outcome outcome =
        run({{"nsenter", fmt::format("--net=/proc/{}/ns/net", pid), "sh", "-e", "-c", commands},
             {},
             {}});
    EXPECT_TRUE(outcome.ok()) << commands << ": " << outcome.err;
    return outcome.out;
  }
  static std::string rules(pid_t pid) {
    return in(pid, "iptables -S; ip6tables -S; nft list tables");
  }

 private:
  UniqueFd former_;
};

// One that is about to be dumped, in a network namespace of its own.
struct Enclosed {
  pid_t pid = ::fork();
  Enclosed() {
    if (pid == 0) {
      if (::unshare(CLONE_NEWNET) != 0) ::_exit(1);
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ~Enclosed() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

TEST_F(NetworkLock, OfANetworkOfItsOwnGoesAndTheUsersRulesStay) {
  const Enclosed program;
  in(program.pid,
     "for tables in iptables ip6tables; do $tables -N OURS; $tables -A INPUT -j OURS;"
     "  $tables -A OUTPUT -m mark ! --mark 0xC114 -p udp --dport 9 -j DROP; done;"
     "nft add table inet ours");
  const std::string before = rules(program.pid);
  // As CRIU 4.2 does it.
  in(program.pid,
     "for tables in iptables ip6tables; do"
     "  printf '*filter\n:CRIU - [0:0]\n-I INPUT -j CRIU\n-I OUTPUT -j CRIU\n"
     "-A CRIU -m mark --mark 0xC114 -j ACCEPT\n-A CRIU -j DROP\nCOMMIT\n' | $tables-restore -n; "
     "done;"
     "nft add table inet CRIU-d50f90af-128d-4442-a2");
  ASSERT_NE(rules(program.pid), before);
  remove_network_lock(program.pid);
  EXPECT_EQ(rules(program.pid), before);
}

TEST_F(NetworkLock, OfConnectionsOnTheHostsNetworkGoesAndThoseOfOthersStay) {
  const Connected program;
  const auto rule = [](const char* chain, int from, int to) {
    return fmt::format(
        "iptables -I {} --protocol tcp -m mark ! --mark 0xC114 --source 127.0.0.1 --sport {} "
        "--destination 127.0.0.1 --dport {} -j DROP;",
        chain, from, to);
  };
  sockaddr_in here{}, there{};
  socklen_t length = sizeof here;
  ASSERT_EQ(::getsockname(program.ours.get(), reinterpret_cast<sockaddr*>(&here), &length), 0);
  ASSERT_EQ(::getpeername(program.ours.get(), reinterpret_cast<sockaddr*>(&there), &length), 0);
  const int ours = ntohs(here.sin_port), its = ntohs(there.sin_port);
  in(::getpid(), rule("INPUT", ours, 1) + rule("OUTPUT", 1, its) + "iptables -N CRIU");
  const std::string before = rules(::getpid());
  in(::getpid(), rule("INPUT", ours, its) + rule("OUTPUT", its, ours));
  ASSERT_NE(rules(::getpid()), before);
  remove_network_lock(program.pid);
  EXPECT_EQ(rules(::getpid()), before);
}

}  // namespace
}  // namespace ferry::host
