// PD Lib against a driver in the same process: its calls, their errors, and what becomes of sockets
// when programs end.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "pd_calls.h"
#include "pipe/library/call.h"

namespace ferry::pipe {
namespace {

// Listing 1 of the paper, with both programs in one thread.
TEST_F(LibraryTest, RunsListing1) {
  constexpr int kBacklog = 4;
  constexpr std::size_t kDataLength = 100'000;
  sockaddr_in serv_addr = address_at(0), cli_addr{};
  socklen_t addr_len = sizeof serv_addr;

  /* Server */
  int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(pd_bind(sid, pointer(serv_addr), sizeof serv_addr), 0);
  ASSERT_EQ(pd_listen(sid, kBacklog), 0);
  ASSERT_EQ(pd_getsockname(sid, reinterpret_cast<sockaddr*>(&serv_addr), &addr_len), 0);

  /* Client */
  const int client = pd_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(pd_connect(client, pointer(serv_addr), sizeof serv_addr), 0) << std::strerror(errno);
  void* send_buf = pd_malloc(kDataLength);
  ASSERT_NE(send_buf, nullptr);
  void* ptrs[] = {send_buf};
  ASSERT_EQ(pd_buf_refresh(client, ptrs, 1), 1);
  std::vector<unsigned char> data(kDataLength);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(1));
  std::memcpy(send_buf, data.data(), kDataLength);
  ASSERT_EQ(pd_send(client, send_buf, kDataLength), static_cast<ssize_t>(kDataLength));
  ASSERT_EQ(pd_free(send_buf), 0);
  ASSERT_EQ(pd_close(client), 0);

  /* Server */
  const int acc_sid =
      pd_accept_timed(sid, reinterpret_cast<sockaddr*>(&cli_addr), &addr_len, kSoon);
  ASSERT_GE(acc_sid, 0);
  EXPECT_EQ(ntohl(cli_addr.sin_addr.s_addr), INADDR_LOOPBACK);
  std::size_t received = 0;
  while (received < kDataLength) {
    void* recv_buf = nullptr;
    const ssize_t ret = pd_recv_timed(acc_sid, kDataLength, &recv_buf, kSoon);
    ASSERT_GT(ret, 0) << std::strerror(errno);
    ASSERT_EQ(std::memcmp(recv_buf, data.data() + received, static_cast<std::size_t>(ret)), 0);
    ASSERT_EQ(pd_recv_done(acc_sid, static_cast<std::size_t>(ret)), 0);
    received += static_cast<std::size_t>(ret);
  }
  void* recv_buf = nullptr;
  EXPECT_EQ(pd_recv_timed(acc_sid, 1, &recv_buf, kSoon), 0) << "the client has closed";
  EXPECT_EQ(pd_close(acc_sid), 0);
  EXPECT_EQ(pd_close(sid), 0);
}

TEST_F(LibraryTest, DeliversMoreThanARingHolds) {
  const Pair pair = connected_pair();
  constexpr std::size_t kMessage = 300'001, kCount = 100;
  std::thread sender([&] {
    std::array<void*, 2> buffers{pd_malloc_for(pair.client, kMessage),
                                 pd_malloc_for(pair.client, kMessage)};
    for (std::size_t message = 0; message < kCount; ++message) {
      void* buffer[] = {buffers[message % 2]};
      ASSERT_EQ(pd_buf_refresh_timed(pair.client, buffer, 1, kSoon), 1);
      auto* bytes = static_cast<unsigned char*>(buffer[0]);
      for (std::size_t at = 0; at < kMessage; ++at) {
        bytes[at] = static_cast<unsigned char>((message * kMessage + at) * 31 >> 3);
      }
      ASSERT_EQ(pd_send_timed(pair.client, bytes, kMessage, kSoon), static_cast<ssize_t>(kMessage));
    }
    pd_close(pair.client);
  });
  std::size_t total = 0, wrong = 0;
  for (;;) {
    void* buffer = nullptr;
    const ssize_t got = pd_recv_timed(pair.server, 1 << 20, &buffer, kSoon);
    ASSERT_GE(got, 0) << std::strerror(errno);
    if (got == 0) break;
    const auto* bytes = static_cast<const unsigned char*>(buffer);
    for (std::size_t at = 0; at < static_cast<std::size_t>(got); ++at, ++total) {
      wrong += bytes[at] != static_cast<unsigned char>(total * 31 >> 3);
    }
    ASSERT_EQ(pd_recv_done(pair.server, static_cast<std::size_t>(got)), 0);
  }
  sender.join();
  EXPECT_EQ(total, kMessage * kCount);
  EXPECT_EQ(wrong, 0U);
}

TEST_F(LibraryTest, GivesTheErrorsOfBsdSockets) {
  const auto error_of = [](auto result) { return result < 0 ? errno : 0; };
  EXPECT_EQ(error_of(pd_init(nullptr, 0, 0)), EALREADY);
  EXPECT_EQ(error_of(pd_socket(AF_UNIX, SOCK_STREAM, 0)), EAFNOSUPPORT);
  EXPECT_EQ(error_of(pd_socket(AF_INET, SOCK_DGRAM, 0)), ESOCKTNOSUPPORT);
  EXPECT_EQ(error_of(pd_socket(AF_INET, SOCK_STREAM, IPPROTO_UDP)), EPROTONOSUPPORT);
  EXPECT_EQ(error_of(pd_close(12345)), EBADF);
  EXPECT_EQ(error_of(pd_close(-1)), EBADF);

  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  void* buffer = nullptr;
  char byte = 0;
  EXPECT_EQ(error_of(pd_recv(sid, 1, &buffer)), ENOTCONN);
  EXPECT_EQ(error_of(pd_send(sid, &byte, 1)), ENOTCONN);
  EXPECT_EQ(error_of(pd_listen(sid, 1)), EDESTADDRREQ);
  EXPECT_EQ(error_of(pd_accept(sid, nullptr, nullptr)), EINVAL);
  EXPECT_EQ(error_of(pd_shutdown(sid, SHUT_WR)), ENOTCONN);
  EXPECT_EQ(error_of(pd_getpeername(sid, nullptr, nullptr)), ENOTCONN);
  const sockaddr_in foreign = address_at(0, "192.0.2.77");
  EXPECT_EQ(error_of(pd_bind(sid, pointer(foreign), sizeof foreign)), EADDRNOTAVAIL);
  EXPECT_EQ(error_of(pd_bind(sid, pointer(foreign), 3)), EINVAL);

  std::uint16_t port = 0;
  const int listener = listening_socket(1, &port);
  const sockaddr_in taken = address_at(port);
  EXPECT_EQ(error_of(pd_bind(sid, pointer(taken), sizeof taken)), EADDRINUSE);
  EXPECT_EQ(error_of(pd_accept(listener, nullptr, nullptr)), EAGAIN);
  EXPECT_EQ(error_of(pd_accept_timed(listener, nullptr, nullptr, 1)), EAGAIN);
  EXPECT_EQ(pd_malloc_for(listener, 10), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(pd_malloc_for(sid, 5 << 20), nullptr);
  EXPECT_EQ(errno, ENOMEM);

  ASSERT_EQ(pd_connect(sid, pointer(taken), sizeof taken), 0);
  EXPECT_EQ(error_of(pd_connect(sid, pointer(taken), sizeof taken)), EISCONN);
  const int second = pd_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(error_of(pd_connect(second, pointer(taken), sizeof taken)), ECONNREFUSED)
      << "the backlog is full";
  EXPECT_EQ(error_of(pd_connect(listener, pointer(taken), sizeof taken)), EOPNOTSUPP);
  const int server = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  EXPECT_EQ(error_of(pd_recv(server, 1, &buffer)), EAGAIN);
  EXPECT_EQ(error_of(pd_recv_timed(server, 1, &buffer, 1)), EAGAIN);
  EXPECT_EQ(error_of(pd_recv_done(server, 1)), EINVAL);
  EXPECT_EQ(error_of(pd_send(server, &byte, 1)), EFAULT);
  EXPECT_EQ(error_of(pd_free(&byte)), EFAULT);
  void* of_another = pd_malloc_for(sid, 10);
  EXPECT_EQ(error_of(pd_send(server, of_another, 1)), EFAULT);
  EXPECT_EQ(error_of(pd_send(sid, of_another, 11)), EFAULT);
  EXPECT_EQ(error_of(pd_buf_refresh(server, &of_another, 1)), EFAULT);
  int value = 1;
  EXPECT_EQ(error_of(pd_setsockopt(sid, SOL_SOCKET, SO_SNDBUF, &value, sizeof value)), EISCONN);
  EXPECT_EQ(error_of(pd_setsockopt(sid, SOL_SOCKET, SO_LINGER, &value, sizeof value)), ENOPROTOOPT);
  pd_close(server);
  EXPECT_TRUE(becomes_true([&] { return pd_send(sid, of_another, 1) < 0; }));
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(LibraryTest, RefreshesManyBuffers) {
  const Pair pair = connected_pair();
  std::vector<void*> buffers;
  for (int number = 0; number < 7; ++number) buffers.push_back(pd_malloc_for(pair.client, 1 << 19));
  // The receive ring has room for all of them, and for one more.
  for (void* buffer : buffers) {
    ASSERT_EQ(pd_send_timed(pair.client, buffer, 1 << 19, kSoon), 1 << 19);
  }
  EXPECT_EQ(pd_buf_refresh_timed(pair.client, buffers.data(), 7, kSoon), 7);
  ASSERT_EQ(pd_send_timed(pair.client, buffers[0], 1 << 19, kSoon), 1 << 19);
  ASSERT_EQ(pd_send_timed(pair.client, buffers[1], 1 << 19, kSoon), 1 << 19);
  void* const waits = buffers[1];
  EXPECT_TRUE(becomes_true([&] { return pd_buf_refresh(pair.client, buffers.data(), 7) == 6; }));
  EXPECT_EQ(buffers[6], waits) << "those that are being sent come last";
  void* data = nullptr;
  ASSERT_GT(pd_recv_timed(pair.server, 1 << 20, &data, kSoon), 0);
  ASSERT_EQ(pd_recv_done(pair.server, 1 << 20), 0);
  EXPECT_EQ(pd_buf_refresh_timed(pair.client, buffers.data(), 7, kSoon), 7);
}

TEST_F(LibraryTest, HalfClosesAConnection) {
  const Pair pair = connected_pair();
  send_text(pair.client, "question");
  ASSERT_EQ(pd_shutdown(pair.client, SHUT_WR), 0);
  EXPECT_EQ(receive_text(pair.server, 9), "question");
  send_text(pair.server, "answer");
  EXPECT_EQ(receive_text(pair.client, 6), "answer");
  EXPECT_LT(pd_send(pair.client, nullptr, 0), 0);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(LibraryTest, WaitsForEventsOfManySockets) {
  std::vector<Pair> pairs;
  const int epoll = pd_epoll_create();
  ASSERT_GE(epoll, 0);
  for (int number = 0; number < 20; ++number) {
    pairs.push_back(connected_pair());
    pd_epoll_event event{PD_EPOLLIN, {}};
    event.data.u32 = static_cast<std::uint32_t>(number);
    ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, pairs.back().server, &event), 0);
    ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, pairs.back().server, &event), -1);
    EXPECT_EQ(errno, EEXIST);
  }
  std::array<pd_epoll_event, 32> events{};
  EXPECT_EQ(pd_epoll_wait(epoll, events.data(), 32, 0), 0);
  send_text(pairs[7].client, "x");
  ASSERT_EQ(pd_epoll_wait(epoll, events.data(), 32, kSoon), 1);
  EXPECT_EQ(events[0].data.u32, 7U);
  EXPECT_EQ(events[0].events, PD_EPOLLIN);
  EXPECT_EQ(pd_epoll_wait(epoll, events.data(), 32, 0), 1) << "the level is what counts";
  EXPECT_EQ(receive_text(pairs[7].server, 1), "x");
  EXPECT_EQ(pd_epoll_wait(epoll, events.data(), 32, 0), 0);
  // The end of a connection is an event, too.
  pd_close(pairs[3].client);
  ASSERT_EQ(pd_epoll_wait(epoll, events.data(), 32, kSoon), 1);
  EXPECT_EQ(events[0].data.u32, 3U);
  EXPECT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_DEL, pairs[3].server, nullptr), 0);
  EXPECT_EQ(pd_epoll_wait(epoll, events.data(), 32, 0), 0);
  EXPECT_EQ(pd_epoll_close(epoll), 0);
}

TEST_F(LibraryTest, ReportsAnEdgeOnce) {
  const Pair pair = connected_pair();
  const int epoll = pd_epoll_create();
  pd_epoll_event event{PD_EPOLLIN | PD_EPOLLET, {}};
  ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, pair.server, &event), 0);
  send_text(pair.client, "a");
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, kSoon), 1);
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
  send_text(pair.client, "b");
  EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, kSoon), 1);
  EXPECT_EQ(receive_text(pair.server, 2), "ab");
  pd_epoll_close(epoll);
}

double processor_milliseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

// The TCP socket that keeps the port of such a client is no reason to wake up.
TEST_F(LibraryTest, ABoundClientSleepsWhileItWaits) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  const int client = pd_socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in any = address_at(0), to = address_at(port);
  ASSERT_EQ(pd_bind(client, pointer(any), sizeof any), 0);
  sockaddr_in bound{}, peer{};
  socklen_t size = sizeof bound;
  pd_getsockname(client, reinterpret_cast<sockaddr*>(&bound), &size);
  ASSERT_EQ(pd_connect(client, pointer(to), sizeof to), 0);
  ASSERT_GE(pd_accept_timed(listener, reinterpret_cast<sockaddr*>(&peer), &size, kSoon), 0);
  EXPECT_EQ(peer.sin_port, bound.sin_port);
  const double before = processor_milliseconds();
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(client, 1, &buffer, 300), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_LT(processor_milliseconds() - before, 150);
}

// More sends than the queues hold: no edge is lost where a queue was full.
TEST_F(LibraryTest, ManySocketsSendByEdges) {
  constexpr std::size_t kPairs = 40, kSends = 100, kSize = 4096;
  std::vector<Pair> pairs;
  std::vector<void*> buffers;
  std::vector<std::size_t> sent(kPairs);
  const int epoll = pd_epoll_create();
  for (std::size_t number = 0; number < kPairs; ++number) {
    pairs.push_back(connected_pair());
    buffers.push_back(pd_malloc_for(pairs.back().client, kSize));
    pd_epoll_event event{PD_EPOLLOUT | PD_EPOLLET, {}};
    event.data.u64 = number;
    ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, pairs.back().client, &event), 0);
  }
  for (std::size_t done = 0; done < kPairs;) {
    std::array<pd_epoll_event, 16> events{};
    const int count = pd_epoll_wait(epoll, events.data(), 16, kSoon);
    ASSERT_GT(count, 0) << done << " of " << kPairs;
    for (int index = 0; index < count; ++index) {
      const std::size_t number = events[static_cast<std::size_t>(index)].data.u64;
      const std::size_t before = sent[number];
      while (sent[number] < kSends) {
        const ssize_t size = pd_send(pairs[number].client, buffers[number], kSize);
        if (size < 0) break;
        ++sent[number];
      }
      done += before < kSends && sent[number] == kSends;
    }
  }
  for (const Pair& pair : pairs)
    EXPECT_EQ(receive_text(pair.server, kSends * kSize).size(), kSends * kSize);
  pd_epoll_close(epoll);
}

TEST_F(LibraryTest, ItsEpollCanBeWatchedByTheKernels) {
  const Pair pair = connected_pair();
  const int epoll = pd_epoll_create();
  pd_epoll_event event{PD_EPOLLIN, {}};
  ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, pair.server, &event), 0);
  ASSERT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
  pollfd watched{epoll, POLLIN, 0};
  for (const char* text : {"first", "second", "third"}) {
    send_text(pair.client, text);
    ASSERT_EQ(::poll(&watched, 1, kSoon), 1) << text;
    while (pd_epoll_wait(epoll, &event, 1, 0) == 0)
      ASSERT_EQ(::poll(&watched, 1, kSoon), 1) << text;
    EXPECT_EQ(receive_text(pair.server, std::strlen(text)), text);
    ASSERT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
  }
  // A notice of what has been seen may still come.
  EXPECT_TRUE(becomes_true([&] {
    EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, 0), 0);
    return ::poll(&watched, 1, 0) == 0;
  }));
  pd_epoll_close(epoll);
}

TEST_F(LibraryTest, TheChildOfAForkHasNoSocket) {
  const Pair pair = connected_pair();
  EXPECT_EQ(in_child([&] {
              void* buffer = nullptr;
              if (pd_recv(pair.server, 1, &buffer) != -1 || errno != EBADF) return 1;
              if (pd_close(pair.client) != -1 || errno != EBADF) return 2;
              // It can have some of its own.
              if (pd_init(nullptr, 0, 0) != 0) return 3;
              if (pd_socket(AF_INET, SOCK_STREAM, 0) < 0) return 4;
              return 0;
            }),
            0);
  send_text(pair.client, "still here");
  EXPECT_EQ(receive_text(pair.server, 10), "still here");
}

// Whatever the parent's threads have locked.
TEST_F(LibraryTest, AChildInitializesItselfWhileTheParentUsesEpolls) {
  std::atomic<bool> ended = false;
  pd_epoll_close(pd_epoll_create());
  std::thread looks([&] {
    while (!ended) pd_epoll_close(-1);
  });
  for (int round = 0; round < 30; ++round) {
    EXPECT_EQ(in_child([] {
                ::alarm(20);
                return pd_init(nullptr, 0, 0) == 0 ? 0 : 1;
              }),
              0);
  }
  ended = true;
  looks.join();
}

TEST_F(LibraryTest, AKilledProgramGivesEverythingBack) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  const std::size_t before = pipe_.pool().used();
  const pid_t child = ::fork();
  if (child == 0) {
    if (pd_init(nullptr, 0, 0) != 0) ::_exit(1);
    const sockaddr_in to = address_at(port);
    for (int number = 0; number < 5; ++number) {
      const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
      if (pd_connect(sid, pointer(to), sizeof to) != 0) ::_exit(2);
    }
    for (;;) ::pause();
  }
  std::vector<int> servers;
  for (int number = 0; number < 5; ++number) {
    servers.push_back(pd_accept_timed(listener, nullptr, nullptr, kSoon));
    ASSERT_GE(servers.back(), 0) << std::strerror(errno);
  }
  ::kill(child, SIGKILL);
  for (const int server : servers) {
    void* buffer = nullptr;
    EXPECT_EQ(pd_recv_timed(server, 1, &buffer, kSoon), 0) << std::strerror(errno);
    pd_close(server);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(becomes_true([&] { return pipe_.pool().used() == before; }));
  EXPECT_EQ(pipe_.driver().connections(), 0U);
}

TEST_F(LibraryTest, WhatAKilledProgramHasNotDeliveredIsMissed) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  int has_sent[2];
  ASSERT_EQ(::pipe(has_sent), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (pd_init(nullptr, 0, 0) != 0) ::_exit(1);
    const sockaddr_in to = address_at(port);
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    if (pd_connect(sid, pointer(to), sizeof to) != 0) ::_exit(2);
    void* buffer = pd_malloc(4 << 20);
    pd_send(sid, buffer, 4 << 20);
    pd_send(sid, buffer, 4 << 20);  // more than the receiver's ring has room for
    if (::write(has_sent[1], "", 1) != 1) ::_exit(3);
    for (;;) ::pause();
  }
  const int server = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  ASSERT_GE(server, 0);
  std::size_t got = 0;
  void* buffer = nullptr;
  while (got < (1 << 20)) {
    const ssize_t more = pd_recv_timed(server, 1 << 20, &buffer, kSoon);
    ASSERT_GT(more, 0);
    got += static_cast<std::size_t>(more);
  }
  char byte = 0;
  ::close(has_sent[1]);
  EXPECT_EQ(::read(has_sent[0], &byte, 1), 1);
  ::close(has_sent[0]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ssize_t more = 0;
  while ((more = pd_recv_timed(server, 1 << 20, &buffer, kSoon)) > 0) {
  }
  EXPECT_EQ(more, -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(LibraryTest, WaitersHearThatTheDriverHasEnded) {
  const Pair pair = connected_pair();
  std::thread waiter([&] {
    void* buffer = nullptr;
    EXPECT_EQ(pd_recv_timed(pair.server, 1, &buffer, kSoon), -1);
    EXPECT_EQ(errno, ENODEV);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pipe_.stop();
  waiter.join();
  EXPECT_EQ(pd_socket(AF_INET, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, ENODEV);
}

TEST_F(LibraryTest, TwoThreadsWaitAtTheSameTime) {
  const Pair first = connected_pair(), second = connected_pair();
  std::vector<std::thread> threads;
  for (const Pair& pair : {first, second}) {
    threads.emplace_back([pair] {
      for (int number = 0; number < 200; ++number) EXPECT_EQ(receive_text(pair.server, 1), "x");
    });
  }
  for (int number = 0; number < 200; ++number) {
    send_text(first.client, "x");
    send_text(second.client, "x");
    if (number % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (auto& thread : threads) thread.join();
}

// Another thread may take what the driver tells of a socket before the one that accepts knows its number.
TEST_F(LibraryTest, WhatComesBeforeAnAcceptedSocketIsKnownIsNotLost) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port), client = pd_socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in to = address_at(port);
  ASSERT_EQ(pd_connect(client, pointer(to), sizeof to), 0) << std::strerror(errno);
  pd::Program& program = *pd::Program::get();
  ControlRequest request;
  request.call = Call::kAccept;
  request.socket = program.find(listener)->id;
  ControlReply reply;
  std::vector<UniqueFd> rings;
  ASSERT_EQ(program.ask(request, &reply, &rings), 0);
  // What is told of the first send is there when the second one is done.
  for (const std::uint64_t sends : {1, 2}) {
    send_text(client, "early");
    ASSERT_TRUE(becomes_true([&] {
      program.reap();
      return program.find(client)->done == sends;
    }));
  }
  program.reap();
  const pd::Socket& accepted = *program.place(reply.socket, AF_INET);
  EXPECT_GE(accepted.received, 5U);
}

// The driver closes what it has of the TCP socket when it can.
TEST_F(LibraryTest, APortIsFreeWhenItsListenerIsClosed) {
  std::uint16_t port = 0;
  ASSERT_EQ(pd_close(listening_socket(8, &port)), 0);
  const sockaddr_in address = address_at(port);
  for (int turn = 0; turn < 100; ++turn) {
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(pd_bind(sid, pointer(address), sizeof address), 0) << std::strerror(errno);
    ASSERT_EQ(pd_listen(sid, 8), 0) << std::strerror(errno);
    ASSERT_EQ(pd_close(sid), 0);
  }
}

// A number is used again at once.
TEST_F(LibraryTest, ACallKeepsToTheSocketThatItBeganWith) {
  const Pair pair = connected_pair();
  const pd::Call call(pair.server);
  ASSERT_TRUE(call.lock());
  std::thread waiter([&] {
    void* buffer = nullptr;
    EXPECT_EQ(pd_recv_timed(pair.server, 1, &buffer, kSoon), -1);
    EXPECT_EQ(errno, EBADF);
  });
  pd::Socket& socket = *pd::Program::get()->find(pair.server);
  ASSERT_TRUE(becomes_true([&] {
    const std::lock_guard lock(socket.watch_mutex);
    return !socket.watches.empty();  // it waits
  }));
  ASSERT_EQ(pd_close(pair.server), 0);
  ASSERT_EQ(pd_socket(AF_INET, SOCK_STREAM, 0), pair.server);
  EXPECT_FALSE(call.lock());
  EXPECT_EQ(errno, EBADF);
  waiter.join();
}

TEST_F(LibraryTest, HasOptions) {
  const Pair pair = connected_pair();
  EXPECT_EQ(option(pair.client, PD_SOL_PIPE, PD_SO_CARRIER), PD_CARRIER_PIPE);
  EXPECT_EQ(option(pair.client, SOL_SOCKET, SO_SNDBUF), 4 << 20);
  EXPECT_EQ(option(pair.client, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(option(pair.listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  int size = 3 << 20;
  ASSERT_EQ(pd_setsockopt(sid, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
  ASSERT_NE(pd_malloc_for(sid, 1), nullptr);
  EXPECT_EQ(option(sid, SOL_SOCKET, SO_SNDBUF), 4 << 20) << "rounded up to huge pages";
}

}  // namespace
}  // namespace ferry::pipe
