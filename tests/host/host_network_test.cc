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
