#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "port/endpoint.h"

// UDP sockets as RoCEv2 needs them (docs/wire.md "ICRC over a UDP socket"): unconnected, never
// fragmenting, bound to one address.
namespace ferry::port {

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// `scope` is the interface index for link-local IPv6 addresses and is left out of all others.
// Returns the length of the result.
socklen_t to_socket_address(const Endpoint& endpoint, std::uint32_t scope, SocketAddress* out);
// Of AF_INET or AF_INET6; all zeroes for any other family.
Endpoint from_socket_address(const SocketAddress& address);

// The index of the interface that has `address`; 0: none has.
unsigned interface_of(const Address& address);

// The interface that has the link-local address `address` (the first of several); 0 for other
// addresses and when there is none.
std::uint32_t scope_of(const Address& address);

// A socket bound to `local`, configured. Returns the descriptor, or -1 with an errno value in
// *error.
int open_udp_socket(const Endpoint& local, std::uint32_t scope, int* error);

// A socket that gets what is sent to the multicast group `group.address` through the interface that
// has the address `local`, beside other sockets of the same group. -1 with an errno value in
// *error.
int open_group_socket(const Endpoint& group, const Address& local, int* error);

// How far what it sends to groups goes.
void set_multicast_hops(int descriptor, bool ipv4, std::uint8_t hops);

// Sets every option that a socket of ours has; harmless when they are set already. False with an
// errno value in *error when one that correctness depends on is refused.
bool configure_udp_socket(int descriptor, bool ipv4, int* error);

// The window that a socket's receive buffer allows (Port::window_bytes).
std::size_t window_of(int descriptor);

}  // namespace ferry::port
