// The ceiling for a stream between two hosts over UDP sockets: one sender with UDP_SEGMENT, one
// receiver with UDP_GRO, no protocol above them. Nothing is sent again, so what counts is what the
// receiver got.
//
//   udp_stream --receive ADDRESS PORT                    takes one stream, ends a second after its
//   last datagram; prints
//     {"gbit_per_s":41.2,"bytes":15450000000,"seconds":3.0,"bytes_per_call":61800}
//   udp_stream ADDRESS PORT [--segment B] [--segments N] [--seconds S]     sends; prints
//   {"bytes":...}
#include <netinet/udp.h>
#include <poll.h>

#include <cstdio>
#include <span>
#include <vector>

#include "udp_socket.h"

namespace {

using namespace ferry::bench;

constexpr std::size_t kMaxDatagram = 65507;
constexpr int kFirstWithinMs = 30'000;
constexpr std::int64_t kEndAfterNs = 1'000'000'000;

void receive(const char* address, std::uint16_t port) {
  UdpSocket socket;
  if (!socket.option(SOL_UDP, UDP_GRO, 1)) throw system_error("no UDP_GRO on this kernel");
  socket.bind_to(address, port);
  pollfd ready{socket.get(), POLLIN, 0};
  if (poll(&ready, 1, kFirstWithinMs) <= 0) throw std::runtime_error("no sender within 30 s");
  std::vector<char> buffer(1 << 16);
  std::uint64_t bytes = 0, calls = 0;
  const std::int64_t begin = now_ns();
  std::int64_t last = begin;
  for (std::int64_t now = begin; now - last < kEndAfterNs; now = now_ns()) {
    const ssize_t got = recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) continue;
    last = now;
    bytes += static_cast<std::uint64_t>(got);
    ++calls;
  }
  const double seconds = static_cast<double>(last - begin) / 1e9;
  if (calls < 2 || seconds <= 0) throw std::runtime_error("the stream was too short to measure");
  std::printf("{\"gbit_per_s\":%.3f,\"bytes\":%llu,\"seconds\":%.3f,\"bytes_per_call\":%.0f}\n",
              static_cast<double>(bytes) * 8 / seconds / 1e9,
              static_cast<unsigned long long>(bytes), seconds,
              static_cast<double>(bytes) / static_cast<double>(calls));
}

void send_stream(const char* address, std::uint16_t port, std::size_t segment, std::size_t segments,
                 std::uint64_t seconds) {
  UdpSocket socket;
  socket.connect_to(address, port);
  const std::size_t length = segment * segments;
  if (length > kMaxDatagram) {
    throw std::runtime_error("--segment times --segments: give at most 65507 bytes in all");
  }
  if (segments > 1 && !socket.option(SOL_UDP, UDP_SEGMENT, static_cast<int>(segment))) {
    throw system_error("no UDP_SEGMENT on this kernel");
  }
  const std::vector<char> buffer(length, 'x');
  std::uint64_t bytes = 0;
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds) * 1'000'000'000;
  while (now_ns() < end) {
    const ssize_t sent = send(socket.get(), buffer.data(), length, 0);
    if (sent < 0 && errno != ENOBUFS) throw system_error("cannot send; is the receiver running?");
    if (sent > 0) bytes += static_cast<std::uint64_t>(sent);
  }
  std::printf("{\"bytes\":%llu}\n", static_cast<unsigned long long>(bytes));
}

void run(std::span<char*> arguments) {
  bool receiver = false;
  std::size_t segment = 4120, segments = 15;
  std::uint64_t seconds = 3;
  std::vector<const char*> positional;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (word == "--receive") {
      receiver = true;
    } else if (word == "--segment" && has_value) {
      segment = number("--segment", arguments[++i], 1, kMaxDatagram);
    } else if (word == "--segments" && has_value) {
      segments = number("--segments", arguments[++i], 1, 128);
    } else if (word == "--seconds" && has_value) {
      seconds = number("--seconds", arguments[++i], 1, 3600);
    } else {
      positional.push_back(arguments[i]);
    }
  }
  if (positional.size() != 2) {
    throw std::runtime_error(
        "usage: udp_stream [--receive] ADDRESS PORT [--segment BYTES] [--segments N] "
        "[--seconds S]");
  }
  const auto port = static_cast<std::uint16_t>(number("PORT", positional[1], 1, 65535));
  if (receiver) {
    receive(positional[0], port);
  } else {
    send_stream(positional[0], port, segment, segments, seconds);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  run({argv + 1, static_cast<std::size_t>(argc - 1)});
} catch (const std::exception& error) {
  std::fprintf(stderr, "udp_stream: %s\n", error.what());
  return 1;
}
