#include "host/units/rdma_cm.h"

#include <fmt/core.h>
#include <netinet/in.h>

#include "base/failure.h"
#include "host/proc/process_tree.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

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
