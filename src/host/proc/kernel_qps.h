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

// The QPs of processes on devices of the kernel, as the kernel tells (NETLINK_RDMA), for comparison with what a process
// says of its QPs. The kernel names the thread that made an object, as long as the thread lives. A QP whose thread has
// ended belongs to the process of the QP's PD, or of that PD's context.
namespace ferry::host {

struct KernelQp {
  std::string device;
  std::uint32_t qpn = 0;
  std::uint32_t peer_qpn = 0;  // 0: it is not connected
  pid_t thread = 0;            // the thread that made the QP; 0: the thread has ended
  std::optional<std::uint32_t> pd = {};
};

// The QPs of each of these processes that has any; none where the kernel has no RDMA. The kernel is asked once: it
// tells of all QPs of the host each time. Throws Failure.
std::map<pid_t, std::vector<KernelQp>> kernel_qps(const std::set<pid_t>& pids);

// The QPNs of all processes, by the device's name. Throws Failure.
std::map<std::string, std::set<std::uint32_t>> all_kernel_qpns();

// One entry of the kernel's answer: its attributes. Nothing for a QP of the kernel's own, or
// malformed bytes.
std::optional<KernelQp> parse_kernel_qp(std::span<const std::byte> attributes);

}  // namespace ferry::host
