#pragma once

#include <set>
#include <string>
#include <utility>

#include "port/endpoint.h"

namespace ferry::host {

// The IPv4 and IPv6 addresses of the interfaces in ferryd's network namespace, each behind its interface's name.
using InterfaceAddresses = std::set<std::pair<std::string, port::Address>>;
InterfaceAddresses addresses_of_interfaces();

}  // namespace ferry::host
