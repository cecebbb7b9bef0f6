#include "port/address_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

namespace ferry::port {

Address to_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return Address::from_ipv4(
        ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr));
  }
  Address result;
  std::memcpy(result.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  return result;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.is_ipv4())
    ::inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

std::string remote_address(int socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  return to_string(to_address(reinterpret_cast<sockaddr*>(&name)));
}

std::optional<Address> parse_address(const std::string& text) {
  Address address;
  in_addr ipv4{};
  if (::inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
    return Address::from_ipv4(ntohl(ipv4.s_addr));
  }
  if (::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::string to_string(const Endpoint& endpoint) {
  const std::string address = to_string(endpoint.address);
  const std::string port = ":" + std::to_string(endpoint.udp_port);
  return endpoint.address.is_ipv4() ? address + port : "[" + address + "]" + port;
}

}  // namespace ferry::port
