#pragma once

#include <infiniband/verbs.h>

#include <vector>

#include "device/objects.h"

namespace ferry::device {

// Those of all ports of a device, without empty entries.
std::vector<ibv_gid_entry> gids_of(Context& device);

}  // namespace ferry::device
