#pragma once

#include <memory>
#include <vector>

#include "device/movable.h"

namespace ferry::rnic {

// One RNIC for each network interface that the environment allows (settings.h), named "ferry0",
// "ferry1", … Empty: there is none, or no memory. Never throws.
std::vector<std::unique_ptr<device::MovableRnic>> discover();

}  // namespace ferry::rnic
