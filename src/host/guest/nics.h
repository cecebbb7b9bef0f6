#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/proc/kernel_devices.h"

// The NICs of a virtual machine, as its own kernel has them.
namespace ferry::host {

struct Nic {
  std::string name;  // "eth0"
  std::string mac;   // "52:54:00:12:34:56"
  int index = 0;     // another one when the NIC was away
  bool is_up = false;
};

// "52:54:00:12:34:56", however its letters are written.
std::string mac_text(std::string mac);

// The interface with this MAC in ferryd's network namespace. VLANs, bonds and bridges on a NIC have its MAC as well:
// what is hardware goes before what is not, and the oldest interface before the others.
std::optional<Nic> nic_of(const std::string& mac);
// It has a driver, as NICs have and VLANs, bridges and the like have not.
bool is_hardware(const std::string& name);
// There is an interface of this name.
bool has_interface(const std::string& name);
int mtu_of(const std::string& name);  // throws Failure: it has gone

struct RdmaDevice {
  std::string name;
  std::string
      type;  // "rxe" or "siw", as `rdma link add` takes it; empty: it comes and goes with its NIC by itself
  bool operator==(const RdmaDevice&) const = default;
};

// The kernel's RDMA devices on an interface.
std::vector<RdmaDevice> rdma_devices_on(const std::string& interface,
                                        const std::string& sysfs = kInfinibandClass);

}  // namespace ferry::host
