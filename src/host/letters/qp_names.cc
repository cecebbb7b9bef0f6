#include "host/letters/qp_names.h"

#include <algorithm>
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
  for (const std::string& device : opened_kernel_devices(pid)) {
    for (const port::Address& gid : kernel_gids(device)) names.push_back({gid, 0});
  }
  return names;
}

std::set<device::Letter::End> QpNames::there_are_by_kernel(const Kernel::Names& names) {
  std::set<device::Letter::End> found;
  for (const auto& [device, qpns] : all_kernel_qpns()) {
    const std::vector<port::Address> gids = kernel_gids(device);
    for (const auto& name : names) {
      if (qpns.count(name.qpn) > 0 && std::find(gids.begin(), gids.end(), name.gid) != gids.end())
        found.insert(name);
    }
  }
  return found;
}

std::set<device::Letter::End> QpNames::there_are(const Kernel::Names& names) const {
  try {
    return kernel_.there_are(names);
  } catch (const Failure& failure) {
    log::warn("cannot see which QPs this host has: {}", failure.what());
    return {};
  }
}

QpNames::Own QpNames::of(pid_t pid) const {
  Own own;
  const auto brought = residents_.of(pid).names;
  own.names_.insert(brought.begin(), brought.end());
  std::set<port::Address> brought_gids;
  for (const auto& old : brought) brought_gids.insert(old.gid);
  try {
    for (const auto& name : kernel_.names_of(pid)) {
      own.names_.insert(name);
      // After a move the program uses the addresses of the place where it began.
      for (const port::Address& gid : brought_gids) own.names_.insert({gid, name.qpn});
    }
  } catch (const Failure& failure) {
    log::warn("cannot see which QPs process {} has: {}", pid, failure.what());
  }
  return own;
}

}  // namespace ferry::host
