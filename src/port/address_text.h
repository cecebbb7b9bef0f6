#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "port/endpoint.h"

// Converts addresses from the kernel's form, and to the form that people read.
namespace ferry::port {

// `address` is a sockaddr_in or sockaddr_in6.
Address to_address(const sockaddr* address);

// "10.78.1.1", "fd78::1".
std::string to_string(const Address& address);
// The way back; nothing when the text is no numeric address.
std::optional<Address> parse_address(const std::string& text);
// The address of the other end of a connected socket, without the port. An IPv4 address has its
// IPv4 form also on an IPv6 socket. Empty: the socket is not connected.
std::string remote_address(int socket);
// "10.78.1.1:4791", "[fd78::1]:4791".
std::string to_string(const Endpoint& endpoint);

}  // namespace ferry::port
