#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "device/movable.h"
#include "device/objects.h"
#include "port/endpoint.h"

namespace ferry::device {

port::Address address_of(const ibv_gid& gid);
ibv_gid gid_of(const port::Address& address);

// Gives the index by which the application names the GID that is at `index` of the device's table, in all of its
// contexts of the device; `index` if there is none that could mean this GID in all of them.
std::uint8_t name_gid(const std::vector<MovableContext*>& contexts, std::uint8_t port,
                      std::uint8_t index);

}  // namespace ferry::device
