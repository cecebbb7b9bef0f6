// What the raw UDP programs share: sockets, the clock, arguments. IPv4 only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ferry::bench {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline std::runtime_error system_error(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

// A decimal number from `min` to `max`, or an exception that names the option.
inline std::uint64_t number(const char* option, std::string_view text, std::uint64_t min,
                            std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < min || value > max) {
    throw std::runtime_error(std::string(option) + " " + std::string(text) +
                             ": give a number from " + std::to_string(min) + " to " +
                             std::to_string(max));
  }
  return value;
}

inline sockaddr_in endpoint(const char* address, std::uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  if (inet_pton(AF_INET, address, &result.sin_addr) != 1) {
    throw std::runtime_error(std::string(address) + ": give an IPv4 address");
  }
  return result;
}

// A UDP socket with large buffers (as root) and DF set.
class UdpSocket {
 public:
  UdpSocket() : descriptor_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) throw system_error("cannot make a UDP socket");
    option(SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20);
    option(SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20);
    option(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  }
  ~UdpSocket() { close(descriptor_); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  bool option(int level, int name, int value) {
    return setsockopt(descriptor_, level, name, &value, sizeof value) == 0;
  }
  void bind_to(const char* address, std::uint16_t port) {
    const sockaddr_in to = endpoint(address, port);
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      throw system_error(std::string("cannot bind ") + address + ":" + std::to_string(port));
    }
  }
  void connect_to(const char* address, std::uint16_t port) {
    const sockaddr_in to = endpoint(address, port);
    if (connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      throw system_error(std::string("cannot connect to ") + address + ":" + std::to_string(port));
    }
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace ferry::bench
