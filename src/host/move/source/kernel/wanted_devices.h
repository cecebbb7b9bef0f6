#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace ferry::host {

// What `ferry move --to-device` asks for: for each device of the kernel that a program has, the name of the device with
// which the program is to go on. Each entry of `wanted` is "NEW", for a program with one device, or "OLD=NEW". Devices
// that no entry names are left to the destination. Throws Failure, one line.
std::map<std::string, std::string> wanted_devices(const std::string& program,
                                                  const std::vector<std::string>& wanted,
                                                  const std::set<std::string>& devices);

// For a program with rdma_cm of the kernel, which knows nothing of Ferry's own RNICs. Throws Failure: one of those is
// among the devices that are asked for.
void need_devices_of_kernel(const std::string& program,
                            const std::map<std::string, std::string>& wanted);

}  // namespace ferry::host
