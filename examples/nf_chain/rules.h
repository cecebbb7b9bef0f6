#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nf_chain {

// Requests from a network, to a port, or to any.
struct Rule {
  std::uint32_t network = 0, mask = 0;  // in host order
  std::uint16_t port = 0;               // 0: any

  bool matches(std::uint32_t source, std::uint16_t to) const {
    return (source & mask) == network && (port == 0 || port == to);
  }
};
using Rules = std::vector<Rule>;

// Of "10.6.0.0/16" or "10.6.0.0/16:22". Another text ends the program.
Rule parse_rule(const std::string& text);

}  // namespace nf_chain
