#pragma once

#include <string>

namespace ferry::host {

// Switches off the hot-plug slot of an interface's device, which the machine loses by that. Does nothing where the
// interface has no device. Throws Failure.
void switch_off_slot(const std::string& interface, const std::string& sysfs = "/sys");

}  // namespace ferry::host
