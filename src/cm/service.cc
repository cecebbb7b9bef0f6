#include "cm/service.h"

#include <cstring>

#include "wire/big_endian.h"

namespace ferry::cm {
namespace {

// An IPv4 address lies in the last four bytes, the others are zero.
void store_address(const port::Address& address, bool ipv4, std::byte* at) {
  std::memset(at, 0, 16);
  const std::size_t skip = ipv4 ? 12 : 0;
  std::memcpy(at + skip, address.bytes.data() + skip, 16 - skip);
}

port::Address load_address(const std::byte* at, bool ipv4) {
  if (ipv4) return port::Address::from_ipv4(wire::load_be<std::uint32_t>(at + 12));
  port::Address address;
  std::memcpy(address.bytes.data(), at, 16);
  return address;
}

}  // namespace

void encode(const IpHeader& header, std::span<std::byte> data) {
  const bool ipv4 = header.source.is_ipv4();
  data[0] = std::byte{0};
  data[1] = static_cast<std::byte>((ipv4 ? 4 : 6) << 4);
  wire::store_be(&data[2], header.source_port);
  store_address(header.source, ipv4, &data[4]);
  store_address(header.destination, ipv4, &data[20]);
}

std::optional<IpHeader> parse_ip_header(std::span<const std::byte> data) {
  if (data.size() < kIpHeaderSize || data[0] != std::byte{0}) return std::nullopt;
  const auto version = static_cast<unsigned>(data[1]) >> 4;
  if (version != 4 && version != 6) return std::nullopt;
  IpHeader header;
  header.source_port = wire::load_be<std::uint16_t>(&data[2]);
  header.source = load_address(&data[4], version == 4);
  header.destination = load_address(&data[20], version == 4);
  return header;
}

}  // namespace ferry::cm
