#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/movable.h"

namespace ferry::verbs {

// The RNICs of this machine: in libferry.so those of rnic/ (discover_rnics.cc), in a test its fake.
std::vector<std::unique_ptr<device::MovableRnic>> discover_rnics();
// The RNIC of this name, whatever FERRY_NETDEV and FERRY_FAMILY say. Null: there is none.
std::unique_ptr<device::MovableRnic> find_rnic(const std::string& name);

// device_of() gives null when `device` is not ours.
struct Device;
Device* device_of(ibv_device* device);
std::shared_ptr<device::MovableRnic> rnic_of(const Device& device);
// For fork(): between the two calls the list of devices stays as it is, and no other thread uses it.
void lock_devices();
void unlock_devices();
// Calls `visit` for each device of Ferry's own; looks for them first if this was not done yet.
void visit_own_devices(const std::function<void(const Device& device, device::Rnic& rnic)>& visit);
// The same for the devices of the kernel that the program has been given so far.
void visit_kernel_devices(const std::function<void(device::Rnic& rnic)>& visit);

// While a StockDevicesOnly lives, device lists that this thread asks for are the stock library's alone. The stock
// ibv_import_device() looks into the private parts of every device of the list, and our devices have none.
class StockDevicesOnly {
 public:
  StockDevicesOnly();
  ~StockDevicesOnly();
  StockDevicesOnly(const StockDevicesOnly&) = delete;
  StockDevicesOnly& operator=(const StockDevicesOnly&) = delete;
};

}  // namespace ferry::verbs
