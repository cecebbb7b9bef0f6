#pragma once

#include <sys/socket.h>

#include <string>

#include "port/endpoint.h"

// Addresses as the kernel has them, and as people read them.
namespace ferry::port {

// Of an IPv4 or IPv6 socket address.
Address to_address(const sockaddr* address);

// "10.78.1.1", "fd78::1".
std::string to_string(const Address& address);
// Of the other end of a connected socket, without port; an IPv4 one as such, also on an IPv6 socket.
std::string remote_address(int socket);
// "10.78.1.1:4791", "[fd78::1]:4791".
std::string to_string(const Endpoint& endpoint);

}  // namespace ferry::port
