#include "host/units/rdma_cm.h"

#include <fmt/core.h>
#include <linux/capability.h>
#include <netinet/in.h>

#include "base/failure.h"
#include "host/proc/process_tree.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

constexpr std::uint16_t kFirstOfAll =
    1024;  // rdma_cm: a port below needs a right (PROT_SOCK of the kernel)

// Whether each host has the address: that of any interface, or of the loopback interface.
bool is_everywhere(const port::Address& address) {
  port::Address loopback;
  loopback.bytes.back() = std::byte{1};
  return address == port::Address{} || address == port::Address::from_ipv4(INADDR_ANY) ||
         address == loopback || (address.is_ipv4() && address.bytes[12] == std::byte{127});
}

}  // namespace

void need_movable_rdma_cm(const std::string& program, pid_t pid,
                          const std::vector<Descriptor>& opened, const agent::RdmaCmStatus& rdma_cm,
                          bool address_moves) {
  if (opened.size() > rdma_cm.channels) {
    throw Failure(fmt::format(
        "process {} ({}): descriptor {} is rdma_cm of the kernel that was not opened through this "
        "version of Ferry; start the program anew with ferry run --device",
        pid, program_name(pid).value_or("?"), opened.front().number));
  }
  if (!rdma_cm.obstacle.empty()) {
    throw Failure(
        fmt::format("'{}' has {}, which cannot move along", program, printable(rdma_cm.obstacle)));
  }
  const bool may_have_any = has_capability(pid, CAP_NET_BIND_SERVICE);
  for (const agent::RdmaCmBound& bound : rdma_cm.bound) {
    if (bound.local.udp_port >= kFirstOfAll || bound.local.udp_port == 0 || may_have_any) continue;
    throw Failure(fmt::format(
        "'{}' has port {} of rdma_cm, which it has no right to have again (CAP_NET_BIND_SERVICE)",
        program, bound.local.udp_port));
  }
  if (address_moves) return;
  for (const agent::RdmaCmBound& bound : rdma_cm.bound) {
    if (is_everywhere(bound.local.address)) continue;
    throw Failure(
        fmt::format("'{}' has bound an rdma_cm ID to {}, an address of this host, which does not "
                    "move along; have it listen at any address",
                    program, to_string(bound.local.address)));
  }
}

}  // namespace ferry::host
