// PD Lib with peers that are not on the pipe, which kernel sockets stand for.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "base/unique_fd.h"
#include "pd_calls.h"

namespace ferry::pipe {
namespace {

// The kernel's sockets stand for a program of another host.
TEST_F(LibraryTest, ReachesForeignAddressesByTcp) {
  const int kernels = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = address_at(0);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(kernels, pointer(at), sizeof at), 0);
  ASSERT_EQ(::listen(kernels, 1), 0);
  ::getsockname(kernels, reinterpret_cast<sockaddr*>(&at), &size);
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(pd_connect_timed(sid, pointer(at), sizeof at, kSoon), 0) << std::strerror(errno);
  EXPECT_EQ(option(sid, PD_SOL_PIPE, PD_SO_CARRIER), PD_CARRIER_TCP);
  const int accepted = ::accept(kernels, nullptr, nullptr);
  send_text(sid, "over TCP");
  char text[9] = {};
  EXPECT_EQ(::recv(accepted, text, 8, MSG_WAITALL), 8);
  EXPECT_STREQ(text, "over TCP");
  const int epoll = pd_epoll_create();
  pd_epoll_event event{PD_EPOLLIN, {}};
  ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, sid, &event), 0);
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
  EXPECT_EQ(::send(accepted, "answer", 6, 0), 6);
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, kSoon), 1);
  EXPECT_EQ(receive_text(sid, 6), "answer");
  ::close(accepted);
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(sid, 1, &buffer, kSoon), 0);
  ::close(kernels);
  const int refused = pd_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(pd_connect_timed(refused, pointer(at), sizeof at, kSoon), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  pd_epoll_close(epoll);
}

TEST_F(LibraryTest, WhatTcpHasStillIsALevel) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  const UniqueFd kernels(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in at = address_at(port);
  ASSERT_EQ(::connect(kernels.get(), pointer(at), sizeof at), 0);
  const int sid = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  ASSERT_GE(sid, 0) << std::strerror(errno);
  const int epoll = pd_epoll_create();
  pd_epoll_event event{PD_EPOLLIN, {}};
  ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, sid, &event), 0);
  EXPECT_EQ(::send(kernels.get(), "hello", 5, 0), 5);
  for (const char* text : {"he", "llo"}) {
    ASSERT_EQ(pd_epoll_wait(epoll, &event, 1, kSoon), 1) << text;
    EXPECT_EQ(receive_text(sid, std::strlen(text)), text);
  }
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
  pd_epoll_close(epoll);
}

TEST_F(LibraryTest, AnEpollSeesTheConnectionAfterOneThatWasRefused) {
  const UniqueFd kernels(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at = address_at(0);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(kernels.get(), pointer(at), sizeof at), 0);
  ::getsockname(kernels.get(), reinterpret_cast<sockaddr*>(&at), &size);
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  const int epoll = pd_epoll_create();
  pd_epoll_event event{PD_EPOLLIN, {}};
  ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, sid, &event), 0);
  EXPECT_EQ(pd_connect_timed(sid, pointer(at), sizeof at, kSoon), -1) << "nobody listens";
  EXPECT_EQ(errno, ECONNREFUSED);
  ASSERT_EQ(::listen(kernels.get(), 1), 0);
  ASSERT_EQ(pd_connect_timed(sid, pointer(at), sizeof at, kSoon), 0) << std::strerror(errno);
  const UniqueFd accepted(::accept(kernels.get(), nullptr, nullptr));
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
  EXPECT_EQ(::send(accepted.get(), "x", 1, 0), 1);
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, kSoon), 1);
  EXPECT_EQ(receive_text(sid, 1), "x");
  pd_epoll_close(epoll);
}

TEST_F(LibraryTest, AcceptsForeignProgramsByTcp) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  const int kernels = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in at = address_at(port);
  ASSERT_EQ(::connect(kernels, pointer(at), sizeof at), 0);
  const int sid = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  ASSERT_GE(sid, 0) << std::strerror(errno);
  EXPECT_EQ(option(sid, PD_SOL_PIPE, PD_SO_CARRIER), PD_CARRIER_TCP);
  EXPECT_EQ(::send(kernels, "hello", 5, 0), 5);
  EXPECT_EQ(receive_text(sid, 5), "hello");
  ::close(kernels);
}

}  // namespace
}  // namespace ferry::pipe
