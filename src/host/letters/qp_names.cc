#include "host/letters/qp_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/kernel_qps.h"
#include "host/standin/residents.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

using Names = std::vector<device::Letter::End>;

std::map<pid_t, Names> names_by_kernel(const std::set<pid_t>& pids, KernelGids* gids) {
  std::map<pid_t, Names> names;
  for (const auto& [pid, qps] : kernel_qps(pids)) {
    for (const KernelQp& qp : qps) {
      for (const port::Address& gid : gids->of(qp.device)) names[pid].push_back({gid, qp.qpn});
    }
  }
  for (const pid_t pid : pids) {
    for (const std::string& device : opened_kernel_devices(pid)) {
      for (const port::Address& gid : gids->of(device)) names[pid].push_back({gid, 0});
    }
  }
  return names;
}

std::set<device::Letter::End> there_are_by_kernel(const Names& names, KernelGids* gids) {
  std::set<device::Letter::End> found;
  for (const auto& [device, qpns] : all_kernel_qpns()) {
    const std::vector<port::Address> of_device = gids->of(device);
    for (const auto& name : names) {
      if (qpns.count(name.qpn) > 0 &&
          std::find(of_device.begin(), of_device.end(), name.gid) != of_device.end())
        found.insert(name);
    }
  }
  return found;
}

}  // namespace

QpNames::Kernel QpNames::this_kernel() {
  const auto gids = std::make_shared<KernelGids>();
  return {[gids](const std::set<pid_t>& pids) { return names_by_kernel(pids, gids.get()); },
          [gids](const Kernel::Names& names) { return there_are_by_kernel(names, gids.get()); },
          [gids] { gids->forget(); },
          [gids] {
            for (const KernelDevice& device : kernel_devices()) gids->of(device.name);
          },
          [gids] {
            std::set<port::Address> all;
            for (const KernelDevice& device : kernel_devices()) {
              for (const port::Address& gid : gids->of(device.name)) all.insert(gid);
            }
            return all;
          },
          udp_slots_of};
}

std::set<device::Letter::End> QpNames::there_are(const Kernel::Names& names) const {
  try {
    return kernel_.there_are(names);
  } catch (const Failure& failure) {
    log::warn("cannot see which QPs this host has: {}", failure.what());
    return {};
  }
}

// After a move the program uses the addresses of the place where it began.
bool QpNames::Own::has(const device::Letter::End& name) const {
  if (names_.contains(name)) return true;
  return std::any_of(slots_.begin(), slots_.end(), [&](const UdpSlot& own) {
    return (own.address == name.gid || gids_of_slots_.contains(name.gid)) &&
           (name.qpn == 0 || port::slot_of(name.qpn) == own.slot);
  });
}

std::set<port::Address> QpNames::Own::gids() const {
  std::set<port::Address> gids = gids_of_slots_;
  for (const auto& name : names_) gids.insert(name.gid);
  for (const auto& own : slots_) gids.insert(own.address);
  return gids;
}

std::map<pid_t, QpNames::Own> QpNames::of(const std::set<pid_t>& pids) const {
  std::map<pid_t, Kernel::Names> by_kernel;
  try {
    by_kernel = kernel_.names_of(pids);
  } catch (const Failure& failure) {
    log::warn("cannot see which QPs process {} has: {}", fmt::join(pids, ", "), failure.what());
  }
  std::map<pid_t, Own> all;
  for (const pid_t pid : pids) all[pid] = with_slots(residents_.of(pid), by_kernel[pid]);
  return all;
}

QpNames::Own QpNames::with_slots(const Residents::Resident& resident,
                                 const Kernel::Names& by_kernel) const {
  Own own;
  own.names_.insert(resident.names.begin(), resident.names.end());
  std::set<port::Address> brought_gids;
  for (const auto& old : resident.names) brought_gids.insert(old.gid);
  if (resident.has_fallen_back) {
    // Where a device of the kernel has the address as well, a number can be that of anybody's QP.
    const auto of_devices = kernel_.gids();
    own.slots_ = kernel_.slots_of(resident.pid);
    std::erase_if(own.slots_,
                  [&](const UdpSlot& slot) { return of_devices.contains(slot.address); });
    own.gids_of_slots_ = brought_gids;
    std::erase_if(own.gids_of_slots_,
                  [&](const port::Address& gid) { return of_devices.contains(gid); });
  }
  for (const auto& name : by_kernel) {
    own.names_.insert(name);
    // After a move the program uses the addresses of the place where it began.
    for (const port::Address& gid : brought_gids) own.names_.insert({gid, name.qpn});
  }
  return own;
}

QpNames::Own QpNames::remembered(pid_t pid) const {
  Own own;
  const auto resident = residents_.of(pid);
  own.names_.insert(resident.names.begin(), resident.names.end());
  return own;
}

}  // namespace ferry::host
