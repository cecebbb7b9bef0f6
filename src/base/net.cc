#include "base/net.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "base/failure.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kConnectLimit{10};
constexpr std::chrono::milliseconds kBetweenConnects{20};

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    throw Failure(fmt::format("unknown host '{}' ({}); check the name or give its address", host,
                              ::gai_strerror(error)));
  }
  return AddressList(list, &::freeaddrinfo);
}

}  // namespace

std::pair<std::string, std::uint16_t> split_host_port(const std::string& text,
                                                      std::uint16_t default_port) {
  std::string host = text, port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string::npos) throw Failure(fmt::format("'{}' is no address", text));
    host = text.substr(1, end - 1);
    if (end + 1 < text.size()) port = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':');
             colon != std::string::npos && text.find(':', colon + 1) == std::string::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (host.empty()) throw Failure(fmt::format("'{}' names no host", text));
  if (port.empty()) return {host, default_port};
  std::uint16_t number = 0;
  const char* end = port.data() + port.size();
  const auto [rest, error] = std::from_chars(port.data() + 1, end, number);
  if (port[0] != ':' || error != std::errc() || rest != end) {
    throw Failure(fmt::format("'{}' has no valid port (0 to 65535)", text));
  }
  return {host, number};
}

std::string resolve(const std::string& host) {
  const auto list = look_up(host, 0, 0);
  char name[NI_MAXHOST];
  if (::getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof name, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    throw Failure(fmt::format("unknown host '{}'", host));
  }
  return name;
}

std::string join_host_port(const std::string& address, std::uint16_t port) {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

UniqueFd connect_tcp(const std::string& address, std::uint16_t port) {
  int error = 0;
  UniqueFd socket = try_connect_tcp(address, port, kConnectLimit, &error);
  if (!socket) {
    throw Failure(
        fmt::format("cannot connect to {}: {}", join_host_port(address, port), error_text(error)));
  }
  return socket;
}

UniqueFd try_connect_tcp(const std::string& address, std::uint16_t port,
                         std::chrono::milliseconds limit, int* error) {
  const auto list = look_up(address, port, AI_NUMERICHOST);
  UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
  if (socket) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);  // of connect() too
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  }
  if (!socket || ::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) {
    *error = errno;
    return {};
  }
  const int one = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return socket;
}

UniqueFd connect_unix(const std::string& path, std::chrono::milliseconds limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw Failure(path + ": the path is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    if (socket && ::connect(socket.get(), name, sizeof address) == 0) return socket;
    // Too many wait to be accepted.
    if (errno != EAGAIN || std::chrono::steady_clock::now() > until) {
      throw Failure(fmt::format("nobody answers at {}: {}", path, error_text(errno)));
    }
    std::this_thread::sleep_for(kBetweenConnects);
  }
}

void end_after_silence(int socket, std::chrono::milliseconds silence) {
  const int on = 1;
  const int between = static_cast<int>(
      std::max(std::chrono::duration_cast<std::chrono::seconds>(silence).count() / 4, 1L));
  const auto limit = static_cast<unsigned>(silence.count());
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &between, sizeof between);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

UniqueFd listen_tcp(const std::string& address, std::uint16_t port) {
  const auto list = look_up(address, port, AI_NUMERICHOST | AI_PASSIVE);
  UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (!socket || ::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), 16) != 0) {
    throw Failure(
        fmt::format("cannot listen on {}: {}", join_host_port(address, port), error_text(errno)));
  }
  return socket;
}

bool pause_after_accept(int error) {
  if (error == EINVAL || error == EBADF) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return true;
}

std::string address_of_peer(const std::string& peer) {
  const bool is_ipv4 = peer.starts_with("ipv4:");
  if (!is_ipv4 && !peer.starts_with("ipv6:")) return {};
  const std::size_t end = peer.rfind(':');
  std::string address = peer.substr(5, end < 5 ? std::string::npos : end - 5);
  for (const std::string bracket : {"%5B", "%5D", "[", "]"}) {
    if (const auto at = address.find(bracket); at != std::string::npos) {
      address.erase(at, bracket.size());
    }
  }
  constexpr std::string_view kMapped = "::ffff:";
  if (!is_ipv4 && address.starts_with(kMapped) && address.find('.') != std::string::npos) {
    address.erase(0, kMapped.size());
  }
  return address;
}

std::uint16_t local_port(int socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

}  // namespace ferry
