#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pipe/protocol/control.h"

namespace ferry::pipe {

// The layer-2 domain of an interface: the bridge and VLAN that it is on, or, where it is on none, the
// interface itself. Two interfaces of the same domain reach each other without a router.
struct Domain {
  std::uint64_t network = 0;  // the namespace that the bridge or interface is in
  std::uint32_t interface = 0;
  std::uint16_t vlan = 0;

  auto operator<=>(const Domain&) const = default;
};

// The way to an address.
struct Route {
  bool own = false;      // the address is one of the namespace's own
  Domain domain;         // else: where the address is, without a router between
  SocketAddress source;  // which of the namespace's addresses goes there; without a port
};

// A network namespace, as the kernel knows it at the time of the call. Any thread may call.
class NetworkNamespace {
 public:
  // The kernel lists so many in a short time, however many whoever has made the namespace has added.
  static constexpr std::size_t kMostAddresses = 1024;

  virtual ~NetworkNamespace() = default;

  // The kernel's cookie: no other namespace has it, then or later.
  virtual std::uint64_t id() const = 0;
  // `address` without its port. A loopback address is there wherever the loopback interface has one.
  virtual bool has(const SocketAddress& address) = 0;
  // Those of all interfaces, without ports. Nothing: there are more than kMostAddresses, or the kernel does not say.
  virtual std::optional<std::vector<SocketAddress>> addresses() = 0;
  // Nothing where no interface that is up has the address, or it is a loopback interface.
  virtual std::optional<Domain> domain_of(const SocketAddress& address) = 0;
  // Nothing where there is no way, or a router is on it.
  virtual std::optional<Route> route_to(const SocketAddress& address) = 0;
  // `socket` is a TCP socket of this namespace that the kernel has bound to `address` and its port. Waits for
  // whoever has locked the socket.
  virtual bool has_bound(int socket, const SocketAddress& address) = 0;
  // ... and on which it listens. Waits for nobody.
  virtual bool listens(int socket) = 0;
};

// 0.0.0.0 or ::.
inline bool is_any(const SocketAddress& address) {
  return address.ip == std::array<std::uint8_t, 16>{};
}

}  // namespace ferry::pipe
