#pragma once

#include <memory>
#include <vector>

#include "device/movable.h"

namespace ferry::rnic {

// The RNICs that this machine's network interfaces allow, as the environment says (settings.h):
// "ferry0", "ferry1", ... Empty when there is none. Never throws.
std::vector<std::unique_ptr<device::MovableRnic>> discover();

}  // namespace ferry::rnic
