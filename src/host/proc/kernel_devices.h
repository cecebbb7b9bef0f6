#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/proc/addresses.h"
#include "host/proc/process_facts.h"
#include "port/endpoint.h"

// The RDMA devices of this host's kernel. Ferry's own are none of them.
namespace ferry::host {

inline constexpr char kInfinibandClass[] = "/sys/class/infiniband";
inline constexpr char kVerbsClass[] = "/sys/class/infiniband_verbs";

struct KernelDevice {
  std::string name;        // "mlx5_0", "rxe0"
  bool is_active = false;  // the state of port 1
};

// In the order of their names.
std::vector<KernelDevice> kernel_devices(const std::string& sysfs = kInfinibandClass);

// The GIDs of all ports of a device; none when there is no such device.
std::vector<port::Address> kernel_gids(const std::string& device,
                                       const std::string& sysfs = kInfinibandClass);

// kernel_gids(), remembered for a minute, or until an interface of the host gets or loses an address, from which RoCE
// makes GIDs: a device has a thousand entries, each of which is a file. Any thread may call.
class KernelGids {
 public:
  std::vector<port::Address> of(const std::string& device);
  // Has the next calls look again at devices that were looked at more than a second ago.
  void forget();

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::vector<port::Address> gids;
    InterfaceAddresses addresses;  // at that time
    Clock::time_point at;
  };
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;
};

// The descriptors of a process that are open on /dev/infiniband/uverbs*.
std::vector<Descriptor> opened_device_files(pid_t pid);
// The same for /dev/infiniband/rdma_cm.
std::vector<Descriptor> opened_rdma_cm_files(pid_t pid);
// The names of the RDMA devices that a process has open by these descriptors.
std::vector<std::string> opened_kernel_devices(pid_t pid, const std::string& sysfs = kVerbsClass);

// The character device by which programs use an RDMA device, in /dev/infiniband.
struct DeviceNode {
  std::string name;  // "uverbs0"
  unsigned major = 0, minor = 0;
};
// Nothing: there is no such device.
std::optional<DeviceNode> node_of(const std::string& device,
                                  const std::string& sysfs = kVerbsClass);
std::string to_string(const DeviceNode& node);  // "uverbs0 (231:192)"
// For a program whose /dev comes along with it. `node`: to_string() of the device's node at the former host. Throws
// Failure when `device` has another node here.
void need_node(const std::string& device, const std::string& node,
               const std::string& sysfs = kVerbsClass);

// The device with which a program goes on here that had the device `name` elsewhere: the device of the same name, or
// else the only one whose port is active. Throws Failure.
std::string choose_kernel_device(const std::vector<KernelDevice>& devices, const std::string& name);
// False as well when there is none of this name.
bool has_active_port(const std::vector<KernelDevice>& devices, const std::string& name);
// Throws Failure when `devices` has none of this name.
void need_kernel_device(const std::vector<KernelDevice>& devices, const std::string& name);

}  // namespace ferry::host
