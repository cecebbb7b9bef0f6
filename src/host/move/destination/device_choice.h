#pragma once

#include <string>

#include "host/peers/messages.h"

namespace ferry::host {

// Chooses the device of this host with which a program goes on that has `device` at its source, and tries whether the
// chosen one has what the program needs. Throws Failure, one line.
std::string choose_device(const v1::KernelDevice& device);

// Throws Failure when there is no such device any more.
void need_device(const std::string& name);

}  // namespace ferry::host
