#include "host/move/destination/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/failure.h"
#include "device/gids.h"
#include "device/own_names.h"
#include "ferry.pb.h"
#include "host/proc/device_trial.h"
#include "host/proc/kernel_devices.h"
#include "rnic/discover.h"

namespace ferry::host {
namespace {

// A device of the kernel takes the packets that come to UDP port 4791 of its addresses, where peers on other devices of
// the kernel send to.
void need_roce_port(const std::string& name) {
  const auto own = rnic::find(name);
  if (own == nullptr)
    throw Failure(
        fmt::format("there is no device {} of Ferry's here; see: ferry doctor", printable(name)));
  if (std::filesystem::exists("/sys/module/rdma_rxe")) {
    throw Failure(fmt::format(
        "{} cannot have UDP port 4791, which rdma_rxe has: name one of its devices, or unload it "
        "(rmmod rdma_rxe)",
        name));
  }
  device::PortFacts facts;
  if (own->query(&facts) != 0) return;
  for (const auto& device : kernel_devices()) {
    const auto gids = kernel_gids(device.name);
    const bool takes =
        std::any_of(facts.gids.begin(), facts.gids.end(), [&](const ibv_gid_entry& entry) {
          return std::find(gids.begin(), gids.end(), device::address_of(entry.gid)) != gids.end();
        });
    if (takes) {
      throw Failure(
          fmt::format("{} has the addresses of {}, whose packets it takes; name {} instead",
                      device.name, name, device.name));
    }
  }
}

// The one of Ferry's own devices that the program is to have; empty: it is to have one of the kernel's. A program that
// has one of Ferry's own already keeps it where the kernel has none.
std::string own_choice(const v1::KernelDevice& device, const std::vector<KernelDevice>& here) {
  const std::string& wanted =
      device.wanted().empty() && here.empty() ? device.name() : device.wanted();
  return device::is_own_name(wanted) ? wanted : std::string();
}

}  // namespace

std::string choose_device(const v1::KernelDevice& device) {
  const auto here = kernel_devices();
  std::string chosen = own_choice(device, here);
  if (!chosen.empty()) {
    if (!device.node().empty()) {
      throw Failure(
          fmt::format("a program with a /dev of its own, as containers have, goes on with a device "
                      "of the kernel only, not with {}",
                      chosen));
    }
    need_roce_port(chosen);
  } else if (!device.wanted().empty()) {
    chosen = device.wanted();
    need_kernel_device(here, chosen);
  } else {
    chosen = choose_kernel_device(here, device.name());
  }
  if (!device.node().empty()) need_node(chosen, device.node());
  try_device(chosen, device.needs());
  return chosen;
}

void need_device(const std::string& name) {
  if (device::is_own_name(name)) {
    need_roce_port(name);
  } else {
    need_kernel_device(kernel_devices(), name);
  }
}

}  // namespace ferry::host
