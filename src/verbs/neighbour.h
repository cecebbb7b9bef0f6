#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>

namespace ferry::verbs {

// Where Ethernet frames for a GID go: the MAC address of the next hop, of the group or, for one of
// this host, of its interface; and the VLAN of the interface towards it, 0xffff: none. Asks the
// network when the kernel does not know yet, and waits for `limit` at most. 0; ENETUNREACH: there
// is no route; EHOSTUNREACH: nobody answered; or what a socket says.
int resolve_mac(const ibv_gid& gid, std::chrono::milliseconds limit, std::uint8_t (&mac)[6],
                std::uint16_t* vlan);

// Whether the kernel knows the next hop for a GID now. Also true where there is none to know (this
// host, groups, link-local addresses, interfaces without neighbours) or the kernel does not tell.
// `ask`: if it does not know, it asks the network, and may know later.
bool next_hop_is_known(const ibv_gid& gid, bool ask);

}  // namespace ferry::verbs
