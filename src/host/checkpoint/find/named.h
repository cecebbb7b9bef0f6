#pragma once

#include <string>
#include <vector>

#include "host/checkpoint/find/closure.h"

namespace ferry::host {

// Asks for a program that the user has named, PROGRAM or PROGRAM@HOST, and adds it to its host. `with_here`:
// PROGRAM may be on this host. Throws Failure: there is none, or there are several.
void add_named(Hosts& hosts, const std::string& named, bool with_here,
               std::vector<HostAnswer>* all);

}  // namespace ferry::host
