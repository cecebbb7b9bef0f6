#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipe/policy/prefix.h"

namespace ferry::pipe {

// Whether a program at an address of `from` may connect to one of `to`.
struct Rule {
  std::uint32_t number = 0;  // of the list; no other rule has it, then or later
  bool allows = false;
  Prefix from, to;
  std::uint16_t port = 0;  // of `to`; 0: every one
};

// Rules in an order. The first that a connection meets decides; one that meets none is allowed.
class AccessList {
 public:
  static constexpr std::size_t kMost = 1024;

  // Puts it before the rule with the number `before`, behind all where that is 0, and gives its number. 0: the list is
  // full, or there is no rule `before`.
  std::uint32_t add(Rule rule, std::uint32_t before);
  // False: there is no such rule.
  bool remove(std::uint32_t number);
  bool allows(const SocketAddress& from, const SocketAddress& to) const;
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
  std::uint32_t next_number_ = 1;
};

}  // namespace ferry::pipe
