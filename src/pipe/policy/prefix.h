#pragma once

#include <optional>
#include <string>

#include "pipe/protocol/control.h"

namespace ferry::pipe {

// Addresses that begin with the same bits.
struct Prefix {
  SocketAddress address;  // without a port; family 0: any address of any family
  unsigned length = 0;    // in bits

  bool is_any() const { return address.family == 0; }
  bool is_one_address() const;
  bool has(const SocketAddress& candidate) const;
  bool operator==(const Prefix&) const = default;
};

// "any", "10.0.0.1", "10.0.0.0/24", "fd00::/64". Nothing: it is none of these, or has bits behind its length.
std::optional<Prefix> prefix_of(const std::string& text);
std::string text_of(const Prefix& prefix);
// "10.0.0.1:80", "[fd00::1]:80".
std::string text_of(const SocketAddress& address);

}  // namespace ferry::pipe
