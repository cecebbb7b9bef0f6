#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

// The QPs of processes on devices of the kernel, as the kernel tells (NETLINK_RDMA): what a process
// says of its QPs is compared with them. The kernel names the thread that made an object, as long as
// it lives; the process of a QP whose thread has ended is that of its PD, or of that one's context.
namespace ferry::host {

struct KernelQp {
  std::string device;
  std::uint32_t qpn = 0;
  std::uint32_t peer_qpn = 0;  // 0: it is not connected
  pid_t thread = 0;            // that made it; 0: it has ended
  std::optional<std::uint32_t> pd = {};
};

// Those of process `pid`; none where the kernel has no RDMA. Throws Failure.
std::vector<KernelQp> kernel_qps(pid_t pid);

// The QPNs of all processes, by device.
std::map<std::string, std::set<std::uint32_t>> all_kernel_qpns();

// One entry of the kernel's answer: its attributes. Nothing for a QP of the kernel's own, or
// malformed bytes.
std::optional<KernelQp> parse_kernel_qp(std::span<const std::byte> attributes);

}  // namespace ferry::host
