#pragma once

#include <functional>
#include <optional>
#include <string>

#include "host/peers/this_host.h"

namespace ferry::host {

// What `decided` gives, which asks a store (store/verdict.h); again and again while that fails, as a store on another
// host may. Nothing: it fails, and this ferryd is ending. `what`: of which it is asked, for the log.
std::optional<bool> decided_in_store(const ThisHost& host, const std::string& what,
                                     const std::function<bool()>& decided);

}  // namespace ferry::host
