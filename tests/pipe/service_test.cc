// What ferry-piped does with descriptors that programs give it.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferry/pd.h"
#include "running_pipe.h"

namespace ferry::pipe {
namespace {

constexpr std::chrono::seconds kSoon{20};

TEST(ErrandsTest, APartyKeepsOnlyItselfWaiting) {
  Errands errands(2);
  std::promise<void> end;
  const auto ended = end.get_future().share();
  std::promise<void> began, second_done, other_done;
  errands.run({1, 1}, [&] {
    began.set_value();
    ended.wait();
  });
  ASSERT_EQ(began.get_future().wait_for(kSoon), std::future_status::ready);
  errands.run({1, 1}, [&] { second_done.set_value(); });
  errands.run({2, 1}, [&] { other_done.set_value(); });
  EXPECT_EQ(other_done.get_future().wait_for(kSoon), std::future_status::ready);
  auto second = second_done.get_future();
  EXPECT_EQ(second.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(errands.waiting({1, 1}), 2U);
  end.set_value();
  EXPECT_EQ(second.wait_for(kSoon), std::future_status::ready);
  while (errands.waiting() != 0) std::this_thread::yield();  // nobody uses the promises any more
}

TEST(ErrandsTest, ADescriptorIsClosedWhenNobodyHasIt) {
  Errands errands(1);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  Given first = errands.keep({1, 1}, UniqueFd(ends[1])), second = first;
  first.reset();
  pollfd hung_up{reader.get(), 0, 0};
  EXPECT_EQ(::poll(&hung_up, 1, 0), 0);
  second.reset();
  EXPECT_EQ(::poll(&hung_up, 1, 20'000), 1);
}

// A program that speaks with ferry-piped without PD Lib.
class RawProgram {
 public:
  RawProgram() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, std::getenv("FERRY_PIPE_SOCKET"), sizeof address.sun_path - 1);
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::connect(socket_.get(), name, sizeof address), 0);
    ControlRequest hello;
    hello.call = Call::kHello;
    hello.number = kControlVersion;
    send(hello, {});
  }
  void send(const ControlRequest& request, const std::vector<int>& descriptors) {
    iovec bytes{const_cast<ControlRequest*>(&request), sizeof request};
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size() * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof request));
  }
  void hang_up() { socket_.reset(); }

 private:
  UniqueFd socket_;
};

// TCP sockets whose close waits, for ten minutes, until the peer has read or gone.
struct Lingering {
  UniqueFd socket, peer;

  Lingering() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener.get(), name, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    ::getsockname(listener.get(), name, &size);
    EXPECT_EQ(::connect(socket.get(), name, size), 0);
    peer.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait{1, 600};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
    const std::vector<char> bytes(1 << 20);
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
};

TEST(ServiceTest, WhoseSocketsLingerKeepsNobodyWaiting) {
  RunningPipe::Settings settings;
  settings.serves = false;
  RunningPipe pipe(settings);
  // Two with a request that has no use for them, one that the kernel is asked about, and one in a message that is not
  // read before that is answered. Nobody else has them when ferry-piped gets them.
  std::array<Lingering, 4> lingering;
  RawProgram raw;
  ControlRequest request;
  request.call = Call::kSocket;
  request.number = AF_INET;
  raw.send(request, {lingering[0].socket.get(), lingering[1].socket.get()});
  request.call = Call::kBind;
  raw.send(request, {lingering[2].socket.get()});
  raw.send(request, {lingering[3].socket.get()});
  for (auto& each : lingering) each.socket.reset();
  pipe.serve();
  auto first = std::async(std::launch::async, [] {
    if (pd_init(nullptr, 0, 0) != 0) return false;
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    const bool done = sid >= 0 && pd_malloc_for(sid, 1) != nullptr && pd_close(sid) == 0;
    return pd_release() == 0 && done;
  });
  EXPECT_EQ(first.wait_for(kSoon), std::future_status::ready);
  // Its end, with what it has still asked.
  raw.hang_up();
  auto second = std::async(std::launch::async,
                           [] { return pd_init(nullptr, 0, 0) == 0 && pd_release() == 0; });
  EXPECT_EQ(second.wait_for(kSoon), std::future_status::ready);
  for (auto& each : lingering) each.peer.reset();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

// A socket that listens at a path, as systemd gives it.
UniqueFd listening_at(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(socket.get(), 8), 0);
  return socket;
}

TEST(ServiceTest, ASocketOfSystemdHasToBeItsOwn) {
  std::string folder = (std::filesystem::temp_directory_path() / "ferry-pipe.XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Service::Settings settings;
  settings.socket = folder + "/pipe.sock";
  Pool pool({});
  const auto engine = chosen_engine();
  Driver driver({}, pool, *engine);
  UniqueFd right = listening_at(settings.socket, SOCK_SEQPACKET);
  const UniqueFd elsewhere = listening_at(folder + "/other.sock", SOCK_SEQPACKET);
  for (const auto& wrong : {std::vector{elsewhere.get()}, std::vector{right.get(), elsewhere.get()},
                            std::vector{STDERR_FILENO}}) {
    settings.listening = wrong;
    EXPECT_THROW((Service{settings, driver, *engine}), Failure);
  }
  settings.listening = {right.release()};
  { const Service service(settings, driver, *engine); }
  EXPECT_TRUE(std::filesystem::exists(settings.socket)) << "it is systemd's";
  std::filesystem::remove(settings.socket);
  const UniqueFd stream = listening_at(settings.socket, SOCK_STREAM);
  settings.listening = {stream.get()};
  EXPECT_THROW((Service{settings, driver, *engine}), Failure);
  std::filesystem::remove_all(folder);
}

// What the socket of root answers to one message. Empty: nothing.
std::string ask_as_root(const std::string& message) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = std::getenv("FERRY_PIPE_SOCKET") + std::string(kAdminSuffix);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_EQ(::connect(socket.get(), name, sizeof address), 0);
  EXPECT_EQ(::send(socket.get(), message.data(), message.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(message.size()));
  std::string answer;
  std::array<char, 65536> part;
  ssize_t size = 0;
  while ((size = ::recv(socket.get(), part.data(), part.size(), 0)) > 0) {
    answer.append(part.data(), static_cast<std::size_t>(size));
  }
  return answer;
}

TEST(ServiceTest, WhateverTheSocketOfRootGetsItAnswersTheNext) {
  RunningPipe pipe;
  EXPECT_EQ(ask_as_root("deny 10.0.0.1 any"), "+");
  for (const std::string& bad :
       {std::string(1, '\0'), std::string("\xff\xfe\n\n"), std::string("deny any"),
        std::string(1024, 'x'), std::string("forget 2")}) {
    const std::string answer = ask_as_root(bad);
    EXPECT_TRUE(answer.starts_with('-')) << answer;
    EXPECT_EQ(answer.find('\n'), std::string::npos) << "it has more than a line: " << answer;
  }
  EXPECT_EQ(ask_as_root(std::string(1025, 'x')), "") << "longer than a line may be";
  EXPECT_EQ(ask_as_root(std::string(100'000, 'x')), "");
  const std::string report = ask_as_root("ps");
  EXPECT_NE(report.find(R"("from":"10.0.0.1","number":1,"port":0,"to":"any")"), std::string::npos)
      << report;
}

TEST(ServiceTest, WhoAsksNothingAsRootKeepsNobodyWaiting) {
  RunningPipe pipe;
  std::vector<UniqueFd> silent;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = std::getenv("FERRY_PIPE_SOCKET") + std::string(kAdminSuffix);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  for (int each = 0; each < 8; ++each) {
    silent.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    ASSERT_EQ(::connect(silent.back().get(), name, sizeof address), 0);
  }
  EXPECT_EQ(ask_as_root("limit any --rate 1M"), "+");
  ASSERT_EQ(pd_init(nullptr, 0, 0), 0);
  EXPECT_EQ(pd_release(), 0);
}

}  // namespace
}  // namespace ferry::pipe
