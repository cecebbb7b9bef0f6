#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

#include "migrate/unique_fd.h"
#include "port/endpoint.h"

namespace ferry::migrate {

// "h2", "h2:4780", "10.0.0.2:4780", "[fd78::1]:4780" → host, port. Throws Failure.
std::pair<std::string, std::uint16_t> split_host_port(const std::string& text,
                                                      std::uint16_t default_port);

// Numeric address of a host's name. Throws Failure ("unknown host ...").
std::string resolve(const std::string& host);

// "a.b.c.d:port" or "[v6]:port", as gRPC takes it.
std::string join_host_port(const std::string& address, std::uint16_t port);

// A connected TCP socket (TCP_NODELAY, close-on-exec). Throws Failure.
UniqueFd connect_tcp(const std::string& address, std::uint16_t port);

// A listening TCP socket; port 0: any. Throws Failure.
UniqueFd listen_tcp(const std::string& address, std::uint16_t port);

// After accept() failed with `error`: false when the socket has been shut down. Else true, after a
// rest: whatever is short, as descriptors, is not there sooner by asking at once.
bool pause_after_accept(int error);

// Bound port of a socket.
std::uint16_t local_port(int socket);

port::Address to_address(const sockaddr* address);
std::string to_string(const port::Address& address);
std::string to_string(const port::Endpoint& endpoint);

}  // namespace ferry::migrate
