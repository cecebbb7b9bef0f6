#pragma once

#include <infiniband/verbs.h>

#include "device/objects.h"
#include "port/endpoint.h"

namespace ferry::device {

port::Address address_of(const ibv_gid& gid);
ibv_gid gid_of(const port::Address& address);

}  // namespace ferry::device
