#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>

namespace ferry::verbs {

// Finds where Ethernet frames for a GID go. `mac`: the address of the next hop; of the group; or,
// for a GID of this host, of its interface. `vlan`: of the interface towards the next hop; 0xffff:
// none. When the kernel does not know the next hop yet, asks the network, and waits for `limit` at
// most. 0; ENETUNREACH: there is no route; EHOSTUNREACH: nobody answered, or this host's interface
// has no MAC address; or the errno value of getifaddrs(3).
int resolve_mac(const ibv_gid& gid, std::chrono::milliseconds limit, std::uint8_t (&mac)[6],
                std::uint16_t* vlan);

// Whether the kernel knows the next hop for a GID now. Also true where there is none to know (this
// host, groups, link-local addresses, interfaces without neighbours) or the kernel does not tell.
// `ask`: if the kernel does not know, it asks the network, and may know later.
bool next_hop_is_known(const ibv_gid& gid, bool ask);

}  // namespace ferry::verbs
