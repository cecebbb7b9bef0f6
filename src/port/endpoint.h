#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ferry::port {

// An IP address in the form of a GID (IBTA vol. 1 annex A17.4.5): IPv6 as it is, IPv4 mapped to
// ::ffff:a.b.c.d. Network byte order.
struct Address {
  std::array<std::byte, 16> bytes{};

  // True for ::ffff:0:0/96, the form of an IPv4 address.
  bool is_ipv4() const {
    static constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kMapped, sizeof kMapped) == 0;
  }
  bool is_multicast() const {
    return is_ipv4() ? (bytes[12] & std::byte{0xf0}) == std::byte{0xe0}
                     : bytes[0] == std::byte{0xff};
  }
  // `address` in host byte order.
  static Address from_ipv4(std::uint32_t address) {
    Address result;
    result.bytes[10] = result.bytes[11] = std::byte{0xff};
    for (int i = 0; i < 4; ++i) result.bytes[12 + i] = std::byte(address >> (24 - 8 * i));
    return result;
  }
  auto operator<=>(const Address&) const = default;
  // The default compares byte by byte, which is too slow: every packet is compared several times.
  bool operator==(const Address& other) const {
    return std::memcmp(bytes.data(), other.bytes.data(), sizeof bytes) == 0;
  }
};

// Where datagrams come from and go to. `udp_port` is in host byte order.
struct Endpoint {
  Address address;
  std::uint16_t udp_port = 0;
  auto operator<=>(const Endpoint&) const = default;
};

}  // namespace ferry::port
