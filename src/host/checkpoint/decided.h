#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "host/peers/this_host.h"

namespace ferry::host {

// Who leads a checkpoint or a restart has ended that with a host, before the host knew how it is decided.
enum class LeaderIs : std::uint8_t {
  kLost,  // or cut off: other hosts may do as it has decided
  kHere,  // and has given it up, as far as it knows
};

// What `decided` gives, which asks a store (store/verdict.h); again and again while that fails, as a store on another
// host may, if the leader is lost. Nothing: it fails, and this ferryd is ending, or leads itself. `what`: of which it
// is asked, for the log.
std::optional<bool> decided_in_store(const ThisHost& host, const std::string& what, LeaderIs leader,
                                     const std::function<bool()>& decided);

}  // namespace ferry::host
