#pragma once

#include <linux/socket.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cm/service.h"
#include "port/endpoint.h"

namespace ferry::rdmacm {

// sockaddr_ib of rdma_cm (AF_IB), which libc does not have.
inline constexpr std::uint16_t kAfIb = 27;
struct SockaddrIb {
  std::uint16_t family;
  std::uint16_t pkey;  // network byte order, like all that follow
  std::uint32_t flow_info;
  std::uint8_t gid[16];
  std::uint64_t service_id, service_id_mask, scope_id;
};

// An address that rdma_cm binds or resolves.
struct Address {
  std::uint16_t family = AF_UNSPEC;  // AF_INET, AF_INET6, AF_IB
  port::Address ip;                  // of AF_IB: the GID
  std::uint16_t port = 0;
  std::uint32_t scope = 0;          // of link-local IPv6 addresses
  std::uint64_t ib_service_id = 0;  // of AF_IB
  bool wildcard = false;            // a loopback address that no device has: any address is meant

  bool is_any() const;
  bool is_loopback() const;
  bool is_multicast() const;
  // Bytes of its sockaddr.
  std::size_t size() const;
  // Writes its sockaddr to `out`, which has room for sockaddr_storage.
  void store(void* out) const;
};

port::Address any_address(std::uint16_t family);

// Nothing for other families and for sizes that do not hold the address.
std::optional<Address> parse_address(const void* from, std::size_t size);

}  // namespace ferry::rdmacm
