#pragma once

#include <string>
#include <vector>

#include "port/endpoint.h"

// The RDMA devices of this host's kernel. Ferry's own are none of them.
namespace ferry::host {

inline constexpr char kInfinibandClass[] = "/sys/class/infiniband";

struct KernelDevice {
  std::string name;        // "mlx5_0", "rxe0"
  bool is_active = false;  // the state of port 1
};

// In the order of their names.
std::vector<KernelDevice> kernel_devices(const std::string& sysfs = kInfinibandClass);

// The GIDs of all ports of a device; none when there is no such device.
std::vector<port::Address> kernel_gids(const std::string& device,
                                       const std::string& sysfs = kInfinibandClass);

// The device with which a program goes on here that had the device `name` elsewhere: that of the
// same name, or else the only one whose port is active. Throws Failure.
std::string choose_kernel_device(const std::vector<KernelDevice>& devices, const std::string& name);

}  // namespace ferry::host
