#include "host/letters/qp_names.h"

#include <map>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/kernel_qps.h"
#include "host/standin/residents.h"

namespace ferry::host {

std::vector<device::Letter::End> QpNames::names_by_kernel(pid_t pid) {
  std::map<std::string, std::vector<port::Address>> gids;
  std::vector<device::Letter::End> names;
  for (const KernelQp& qp : kernel_qps(pid)) {
    const auto [found, is_new] = gids.try_emplace(qp.device);
    if (is_new) found->second = kernel_gids(qp.device);
    for (const port::Address& gid : found->second) names.push_back({gid, qp.qpn});
  }
  return names;
}

QpNames::Own QpNames::of(pid_t pid) const {
  Own own;
  const auto brought = residents_.of(pid).names;
  own.names_.insert(brought.begin(), brought.end());
  try {
    for (const auto& name : of_kernel_(pid)) {
      own.names_.insert(name);
      // After a move the program uses the addresses of the place where it began.
      for (const auto& old : brought) own.names_.insert({old.gid, name.qpn});
    }
  } catch (const Failure& failure) {
    log::warn("cannot see which QPs process {} has: {}", pid, failure.what());
  }
  return own;
}

}  // namespace ferry::host
