#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace ferry::launch {

// Where a process finds the kernel's RDMA devices.
struct KernelFolders {
  std::string sys = "/sys", dev = "/dev";
};
// The addresses of this process's network namespace but for those of the loopback interface; IPv4 ones as
// ::ffff:a.b.c.d.
std::vector<in6_addr> own_addresses();

// The names of the kernel's devices that a process can use, in the kernel's order. The process can open the device's
// node, and a port is active, of InfiniBand or of Ethernet. A port of Ethernet has a GID that is one of `addresses`:
// the device of another network namespace, which sysfs shows as well, has none.
std::vector<std::string> usable_kernel_devices(const KernelFolders& folders,
                                               const std::vector<in6_addr>& addresses);

// Those of the devices that a libibverbs shows, which has a provider for them then. `verbs`: its handle of dlopen().
std::vector<std::string> with_provider(std::vector<std::string> devices, void* verbs);

}  // namespace ferry::launch
