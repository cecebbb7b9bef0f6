#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/movable.h"

namespace ferry::rnic {

// One RNIC for each network interface that the environment allows (settings.h), named "ferry0",
// "ferry1", … Empty: there is none, or no memory. Never throws.
std::vector<std::unique_ptr<device::MovableRnic>> discover();

// The RNIC that has this name where the environment restricts neither interfaces nor address families: programs and
// ferryd, which have other environments, mean the same one. Null: there is none. Never throws.
std::unique_ptr<device::MovableRnic> find(const std::string& name);

}  // namespace ferry::rnic
