#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace ferry::verbs {

// The name that the kernel of this host gives to a device of the stock library's list. After a move, device->name can
// be the one from another host: the library takes a device for one that it knows if both have the same uverbs number
// and the same index.
std::string kernel_name_of(const ibv_device& device,
                           const std::string& sysfs = "/sys/class/infiniband_verbs");

}  // namespace ferry::verbs
