#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace ferry {

// "h2", "h2:4780", "10.0.0.2:4780", "[fd78::1]:4780" → host, port. Throws Failure.
std::pair<std::string, std::uint16_t> split_host_port(const std::string& text,
                                                      std::uint16_t default_port);

// Numeric address of a host's name. Throws Failure ("unknown host ...").
std::string resolve(const std::string& host);

// "a.b.c.d:port" or "[v6]:port", as gRPC takes it.
std::string join_host_port(const std::string& address, std::uint16_t port);

// A connected TCP socket (TCP_NODELAY, close-on-exec), on which nothing waits for more than some
// seconds. Throws Failure, also when nobody answers for so long.
UniqueFd connect_tcp(const std::string& address, std::uint16_t port);

// The same, without a socket when nobody takes the connection within `limit`; `error` is why:
// ECONNREFUSED where the host answers, EINPROGRESS, EHOSTUNREACH and others where it does not.
UniqueFd try_connect_tcp(const std::string& address, std::uint16_t port,
                         std::chrono::milliseconds limit, int* error);

// A connected UNIX socket (close-on-exec), on which nothing waits. Throws Failure, also when nobody accepts within
// `limit`.
UniqueFd connect_unix(const std::string& path, std::chrono::milliseconds limit);

// The connection ends (ETIMEDOUT) when the other host has acknowledged nothing for `silence`, whether
// something is sent or not. A program that does not read does not count as silence at first, but it
// does when it leaves the buffers full for so long.
void end_after_silence(int socket, std::chrono::milliseconds silence);

// A listening TCP socket; port 0: any. Throws Failure.
UniqueFd listen_tcp(const std::string& address, std::uint16_t port);

// After accept() failed with `error`: false when the socket has been shut down. Else true, after a
// rest: whatever is short, as descriptors, is not there sooner by asking at once.
bool pause_after_accept(int error);

// The numeric address in gRPC's notation ("ipv4:10.0.0.2:4780", "ipv6:%5Bfd78::1%5D:4780"), an IPv4
// one as such, also on an IPv6 socket; "" for others.
std::string address_of_peer(const std::string& peer);

// Bound port of a socket.
std::uint16_t local_port(int socket);

}  // namespace ferry
