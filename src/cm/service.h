#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cm/message.h"

// RDMA IP CM service (IBTA annex A11): TCP-like ports as service IDs, and the IP addresses of both
// ends in the first bytes of a request's private data.
//
//   service id = 0x0000000001:40 | port space's protocol:8 | port:16
//   header     = major:4(0) minor:4(0) ip_version:4 rsvd:4 source_port:16 source(16)
//                destination(16)                                                      36 bytes
namespace ferry::cm {

inline constexpr std::size_t kIpHeaderSize = 36;

struct IpHeader {
  std::uint16_t source_port = 0;
  port::Address source, destination;  // of one family
};

// `port_space` as rdma_port_space (RDMA_PS_TCP 0x0106, RDMA_PS_UDP 0x0111, …).
constexpr ServiceId service_id(std::uint16_t port_space, std::uint16_t port) {
  return ServiceId{port_space} << 16 | port;
}
constexpr std::uint16_t port_of(ServiceId id) {
  return static_cast<std::uint16_t>(id);
}

// Writes the first kIpHeaderSize bytes of `data`.
void encode(const IpHeader& header, std::span<std::byte> data);
// Nothing when major or minor is not 0, ip_version is not 4 or 6, or the data is too short.
std::optional<IpHeader> parse_ip_header(std::span<const std::byte> data);

}  // namespace ferry::cm
