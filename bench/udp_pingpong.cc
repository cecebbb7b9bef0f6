// The floor for a latency between two hosts over UDP sockets: both sides poll a non-blocking
// socket. With --thread, on both sides, a thread that sleeps takes what arrives, and the program
// spins on its memory: the floor for a WRITE into a program that calls nothing.
//
//   udp_pingpong --server ADDRESS PORT [--thread]         echoes until SIGTERM
//   udp_pingpong ADDRESS PORT [--thread] [--size B] [--rounds N]     prints one JSON object:
//     {"size":64,"rounds":100000,"median_us":2.01,"p99_us":2.9,"p999_us":9.3,"max_us":41.2}     one
//     way: half a round trip
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include "udp_socket.h"

namespace {

using namespace ferry::bench;

constexpr std::int64_t kLostAfterNs = 1'000'000'000;
constexpr std::size_t kMaxSize = 1472;

// Takes what arrives: the caller of take(), or a thread that sleeps until there is something.
class Inbox {
 public:
  Inbox(UdpSocket& socket, bool thread) : socket_(socket) {
    if (thread) thread_ = std::thread([this] { fill(); });
  }
  ~Inbox() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Bytes, into `buffer`; negative: nothing is there. `from` is who sent it.
  ssize_t take(std::span<char> buffer, sockaddr_in* from) {
    if (!thread_.joinable()) return receive(buffer, from);
    if (!full_.load(std::memory_order_acquire)) return -1;
    const ssize_t got = std::min(got_, static_cast<ssize_t>(buffer.size()));
    std::memcpy(buffer.data(), message_, static_cast<std::size_t>(got));
    *from = from_;
    full_.store(false, std::memory_order_release);
    return got;
  }

 private:
  ssize_t receive(std::span<char> buffer, sockaddr_in* from) {
    socklen_t length = sizeof *from;
    return recvfrom(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT,
                    reinterpret_cast<sockaddr*>(from), &length);
  }
  void fill() {
    while (!ending_) {
      pollfd ready{socket_.get(), POLLIN, 0};
      if (poll(&ready, 1, kLookMs) <= 0) continue;
      while (full_.load(std::memory_order_acquire) && !ending_) std::this_thread::yield();
      got_ = receive(message_, &from_);
      if (got_ >= 0) full_.store(true, std::memory_order_release);
    }
  }

  static constexpr int kLookMs = 50;  // whether it is to end
  UdpSocket& socket_;
  std::thread thread_;
  std::atomic<bool> full_{false}, ending_{false};
  char message_[kMaxSize];
  ssize_t got_ = 0;
  sockaddr_in from_{};
};

[[noreturn]] void serve(const char* address, std::uint16_t port, bool thread) {
  UdpSocket socket;
  socket.bind_to(address, port);
  Inbox inbox(socket, thread);
  char buffer[kMaxSize];
  for (;;) {
    sockaddr_in from{};
    const ssize_t got = inbox.take(buffer, &from);
    if (got < 0) continue;
    sendto(socket.get(), buffer, static_cast<std::size_t>(got), 0,
           reinterpret_cast<const sockaddr*>(&from), sizeof from);
  }
}

// Nanoseconds of one round trip. The message carries its round, so that a late echo is not taken
// for this one.
std::int64_t round_trip(UdpSocket& socket, Inbox& inbox, std::span<char> message,
                        std::uint64_t round) {
  std::memcpy(message.data(), &round, sizeof round);
  const std::int64_t begin = now_ns();
  if (send(socket.get(), message.data(), message.size(), 0) < 0 && errno != ECONNREFUSED) {
    throw system_error("cannot send");
  }
  for (;;) {
    sockaddr_in from{};
    const ssize_t got = inbox.take(message, &from);
    const std::int64_t end = now_ns();
    std::uint64_t echoed = 0;
    std::memcpy(&echoed, message.data(), sizeof echoed);
    if (got == static_cast<ssize_t>(message.size()) && echoed == round) return end - begin;
    if (end - begin > kLostAfterNs) {
      throw std::runtime_error("no echo within a second; is the server running?");
    }
  }
}

void measure(const char* address, std::uint16_t port, bool thread, std::size_t size,
             std::uint64_t rounds) {
  UdpSocket socket;
  socket.connect_to(address, port);
  Inbox inbox(socket, thread);
  std::vector<char> message(kMaxSize);
  std::vector<std::int64_t> times;
  times.reserve(rounds);
  const std::uint64_t warm_up = rounds / 10;
  for (std::uint64_t round = 0; round < warm_up + rounds; ++round) {
    const std::int64_t time = round_trip(socket, inbox, {message.data(), size}, round);
    if (round >= warm_up) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  // One way, of the round trip below which this share of them stays.
  const auto one_way_us = [&times](double share) {
    const auto rank = static_cast<std::size_t>(share * static_cast<double>(times.size()));
    return static_cast<double>(times[std::min(rank, times.size() - 1)]) / 2000;
  };
  std::printf(
      "{\"size\":%zu,\"rounds\":%zu,\"median_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":"
      "%.3f}"
      "\n",
      size, times.size(), one_way_us(0.5), one_way_us(0.99), one_way_us(0.999), one_way_us(1));
}

void run(std::span<char*> arguments) {
  bool server = false, thread = false;
  std::size_t size = 64;
  std::uint64_t rounds = 100'000;
  std::vector<const char*> positional;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (word == "--server") {
      server = true;
    } else if (word == "--thread") {
      thread = true;
    } else if (word == "--size" && has_value) {
      size = number("--size", arguments[++i], sizeof(std::uint64_t), kMaxSize);
    } else if (word == "--rounds" && has_value) {
      rounds = number("--rounds", arguments[++i], 10, 100'000'000);
    } else {
      positional.push_back(arguments[i]);
    }
  }
  if (positional.size() != 2) {
    throw std::runtime_error(
        "usage: udp_pingpong [--server] ADDRESS PORT [--thread] [--size BYTES] [--rounds N]");
  }
  const auto port = static_cast<std::uint16_t>(number("PORT", positional[1], 1, 65535));
  if (server) serve(positional[0], port, thread);
  measure(positional[0], port, thread, size, rounds);
}

}  // namespace

int main(int argc, char** argv) try {
  run({argv + 1, static_cast<std::size_t>(argc - 1)});
} catch (const std::exception& error) {
  std::fprintf(stderr, "udp_pingpong: %s\n", error.what());
  return 1;
}
