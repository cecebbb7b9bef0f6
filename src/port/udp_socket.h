#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "port/endpoint.h"

// UDP sockets as RoCEv2 needs them (docs/wire.md "ICRC over a UDP socket"): unconnected, never
// fragmenting, bound to one address.
namespace ferry::port {

// What is asked for, in bytes; the kernel doubles it.
inline constexpr int kReceiveBuffer = 16 << 20, kSendBuffer = 4 << 20;

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// `scope` is the interface index for link-local IPv6 addresses, and is left out of all others.
// Returns the length of *out in bytes.
socklen_t to_socket_address(const Endpoint& endpoint, std::uint32_t scope, SocketAddress* out);
// `address` is of AF_INET or AF_INET6; the result is all zeroes for any other family.
Endpoint from_socket_address(const SocketAddress& address);

// The index of the interface that has `address`; 0: none has.
unsigned interface_of(const Address& address);

// The index of the first interface that has the link-local address `address`; 0 when none has it,
// and for other addresses.
std::uint32_t scope_of(const Address& address);

// Opens a configured socket that is bound to `local`. Returns the descriptor, or -1 with an errno
// value in *error.
int open_udp_socket(const Endpoint& local, std::uint32_t scope, int* error);

// Opens a socket that gets datagrams to the multicast group `group.address` from the interface that
// has the address `local`, beside other sockets of the same group. Returns the descriptor, or -1
// with an errno value in *error.
int open_group_socket(const Endpoint& group, const Address& local, int* error);

// Sets the hop limit of datagrams to multicast groups.
void set_multicast_hops(int descriptor, bool ipv4, std::uint8_t hops);

// Sets every option that a socket of ours has; harmless when they are set already. Returns false,
// with an errno value in *error, when the kernel refuses one that correctness depends on.
bool configure_udp_socket(int descriptor, bool ipv4, int* error);

// The window in bytes that a socket's receive buffer allows (Port::window_bytes).
std::size_t window_of(int descriptor);

}  // namespace ferry::port
