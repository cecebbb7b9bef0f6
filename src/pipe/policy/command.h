#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "pipe/policy/access_list.h"

namespace ferry::pipe {

// What root asks of ferry-piped: a line of words.
//
//   ps
//   allow|deny FROM TO[:PORT] [--before NUMBER]    FROM, TO: an address, a prefix, "any"; [TO]:PORT of IPv6
//   forget NUMBER                                  of a rule
//   limit ADDRESS[/BITS]|any [--rate BYTES|none] [--connection-rate BYTES|none] [--memory BYTES|none]
//                                                  BYTES: with K, M, G or T of 1024 or without
struct Command {
  enum class Kind { kPs, kRule, kForget, kLimit };

  Kind kind = Kind::kPs;
  Rule rule;  // without a number
  std::uint32_t number =
      0;  // of the rule to forget, or that comes behind the new one (0: none does)
  Prefix limited;
  std::optional<std::uint64_t> rate, connection_rate, memory;  // nothing: as it is; 0: none
};

inline constexpr std::uint64_t kLowestRate = 1024, kHighestRate = std::uint64_t{1} << 40;

// Throws Failure.
Command command_of(const std::string& line);

}  // namespace ferry::pipe
