#include "host/units/host_network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::host {
namespace {

std::string line_of(const std::string& place, const std::string& peer, const std::string& state) {
  return "   3: " + place + " " + peer + " " + state +
         " 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 "
         "10 0";
}

TEST(HostNetworkTest, AConnectionIsReadFromTheKernelsTable) {
  const auto socket = parse_tcp_socket(line_of("01004D0A:C350", "02004D0A:48A8", "01"));
  ASSERT_TRUE(socket);
  EXPECT_EQ(socket->address, "10.77.0.1");
  EXPECT_EQ(socket->port, 50000);
  EXPECT_EQ(socket->peer_port, 18600);
  EXPECT_EQ(socket->inode, 4711u);
  EXPECT_FALSE(socket->listens);
  EXPECT_FALSE(socket->is_anywhere);
}

TEST(HostNetworkTest, WildcardsAndLoopbackAreOnEveryHost) {
  const std::string none(32, '0'), mapped = "0000000000000000FFFF0000";
  for (const auto& address :
       {std::string("00000000"), std::string("0100007F"), none, none.substr(8) + "01000000",
        mapped + "00000000", mapped + "0100007F"}) {
    const auto socket = parse_tcp_socket(line_of(address + ":48A8", none + ":0000", "0A"));
    ASSERT_TRUE(socket) << address;
    EXPECT_TRUE(socket->listens);
    EXPECT_TRUE(socket->is_anywhere) << address;
  }
  for (const auto& address : {std::string("01004D0A"), mapped + "01004D0A",
                              "000080FE" + std::string(16, '0') + "01000000"}) {
    const auto socket = parse_tcp_socket(line_of(address + ":48A8", none + ":0000", "0A"));
    ASSERT_TRUE(socket) << address;
    EXPECT_FALSE(socket->is_anywhere) << socket->address;
  }
}

TEST(HostNetworkTest, WhatIsNoSocketIsNone) {
  EXPECT_FALSE(parse_tcp_socket(""));
  EXPECT_FALSE(parse_tcp_socket(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"));
  EXPECT_FALSE(parse_tcp_socket(line_of("0100", "00000000:0000", "0A")));
}

// A process that has these descriptors and no others. This one has what other tests have left.
class Holder {
 public:
  explicit Holder(const std::vector<int>& kept) : pid_(::fork()) {
    if (pid_ == 0) {
      constexpr int kEnough = 1024;
      for (int each = 0; each < kEnough; ++each) {
        if (std::count(kept.begin(), kept.end(), each) == 0) ::close(each);
      }
      ::close_range(kEnough, ~0u, 0);
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);  // it has closed the rest
  }
  ~Holder() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// A process with a listener on all addresses, and one with a connection as well.
TEST(HostNetworkTest, AConnectionOfAProcessIsAnObstacleAndAListenerIsNot) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(obstacle_on_host_network(Holder({listener.get()}).pid()), "");
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(obstacle_on_host_network(Holder({listener.get(), client.get()}).pid()),
            "it is on the host's network and has a TCP connection (to port " +
                std::to_string(ntohs(address.sin_port)) +
                "), which cannot move to another address");
}

}  // namespace
}  // namespace ferry::host
