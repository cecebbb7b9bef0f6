#pragma once

#include <infiniband/verbs.h>

#include <vector>

#include "device/objects.h"
#include "port/endpoint.h"

namespace ferry::device {

// Those of all ports of a device, without empty entries.
std::vector<ibv_gid_entry> gids_of(Context& device);

port::Address address_of(const ibv_gid& gid);
ibv_gid gid_of(const port::Address& address);

}  // namespace ferry::device
