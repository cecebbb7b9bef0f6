#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace ferry::host {

// A process with a TCP connection to us.
struct Connected {
  UniqueFd ours;
  pid_t pid = -1;

  Connected() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* place = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), place, length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), place, &length), 0);
    pid = ::fork();
    if (pid == 0) {
      ::close_range(3, ~0u, 0);  // tests before this one may have connections still
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(socket, place, length) != 0) ::_exit(1);
      for (;;) ::pause();
    }
    ours = UniqueFd(::accept(listener.get(), nullptr, nullptr));
  }
  ~Connected() { end(); }

  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  bool hears_of_the_end(int milliseconds) const {
    pollfd poll{ours.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&poll, 1, milliseconds) > 0;
  }
};

}  // namespace ferry::host
