#include "pipe/policy/prefix.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace ferry::pipe {
namespace {

unsigned bits_of(const SocketAddress& address) {
  return address.family == AF_INET ? 32 : 128;
}

// The address with all bits 0 from `length` on.
std::array<std::uint8_t, 16> first_bits(std::array<std::uint8_t, 16> ip, unsigned length) {
  for (unsigned byte = 0; byte < ip.size(); ++byte) {
    const unsigned kept = std::clamp(length, byte * 8, byte * 8 + 8) - byte * 8;
    ip[byte] = static_cast<std::uint8_t>(ip[byte] & (0xff00U >> kept));
  }
  return ip;
}

std::string ip_text(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(address.family, address.ip.data(), text, sizeof text);
  return text;
}

}  // namespace

bool Prefix::is_one_address() const {
  return !is_any() && length == bits_of(address);
}

bool Prefix::has(const SocketAddress& candidate) const {
  if (is_any()) return true;
  return candidate.family == address.family && first_bits(candidate.ip, length) == address.ip;
}

std::optional<Prefix> prefix_of(const std::string& text) {
  if (text == "any") return Prefix{};
  const std::size_t slash = text.find('/');
  const std::string ip = text.substr(0, slash);
  Prefix prefix;
  prefix.address.family = ip.find(':') == std::string::npos ? AF_INET : AF_INET6;
  // A 0 within the text would end it for inet_pton().
  if (ip.find('\0') != std::string::npos ||
      ::inet_pton(prefix.address.family, ip.c_str(), prefix.address.ip.data()) != 1) {
    return std::nullopt;
  }
  prefix.length = bits_of(prefix.address);
  if (slash != std::string::npos) {
    const char* end = text.data() + text.size();
    unsigned length = 0;
    const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, length);
    if (error != std::errc() || rest != end || length > prefix.length) return std::nullopt;
    prefix.length = length;
  }
  if (first_bits(prefix.address.ip, prefix.length) != prefix.address.ip) return std::nullopt;
  return prefix;
}

std::string text_of(const Prefix& prefix) {
  if (prefix.is_any()) return "any";
  const std::string ip = ip_text(prefix.address);
  return prefix.is_one_address() ? ip : ip + "/" + std::to_string(prefix.length);
}

std::string text_of(const SocketAddress& address) {
  const std::string ip = ip_text(address), port = std::to_string(address.port);
  return address.family == AF_INET6 ? "[" + ip + "]:" + port : ip + ":" + port;
}

}  // namespace ferry::pipe
