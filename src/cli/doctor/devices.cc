#include "cli/doctor/devices.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/companion.h"
#include "base/failure.h"
#include "host/proc/subprocess.h"
#include "port/address_text.h"
#include "port/slot.h"

namespace ferry::cli::doctor {
namespace {

constexpr char kClass[] = "/sys/class/infiniband";

std::vector<KernelDevice> kernel_devices() {
  std::vector<KernelDevice> devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kClass, error)) {
    KernelDevice& device = devices.emplace_back();
    device.name = entry.path().filename();
    std::ifstream parent(entry.path() / "parent");  // only rdma_rxe's devices have it
    std::getline(parent, device.netdev);
  }
  std::ranges::sort(devices, {}, &KernelDevice::name);
  return devices;
}

// The dynamic linker says on stderr why it does not preload a library, and goes on.
std::string preload_problem(const std::string& library) {
  const auto outcome = host::run({{"/bin/true"}, {"LD_PRELOAD=" + library}, {}});
  if (outcome.ok() && outcome.err.empty()) return {};
  return fmt::format("{} cannot be preloaded ({})", library, printable(one_line(outcome.err)));
}

Finding check_library(const DeviceFacts& facts) {
  constexpr char kCheck[] = "libferry.so";
  if (facts.library_problem.empty()) {
    return {kCheck, State::kOk, facts.library + " can be preloaded", {}, {}};
  }
  return of_failure(kCheck, facts.library_problem, "build or install Ferry again");
}

Findings check_netdevs(const DeviceFacts& facts) {
  Findings findings;
  for (const auto& netdev : facts.netdevs) {
    std::string addresses;
    for (const auto& address : netdev.addresses) {
      addresses += (addresses.empty() ? "" : ", ") + port::to_string(address);
    }
    const auto mtu = rnic::payload_mtu(netdev.mtu);
    Finding& finding = findings.emplace_back();
    finding.check = "interface " + netdev.name;
    finding.found = fmt::format("becomes ferry{}: {}, MTU {}, so RDMA MTU {}", findings.size() - 1,
                                addresses, netdev.mtu, mtu);
    if (netdev.loopback) {
      finding.state = State::kNote;
      finding.found += "; no other host can be reached by it";
      finding.way_out = "give another interface an address: ip address add ADDRESS/LENGTH dev DEV";
    } else if (mtu < 1024) {
      finding.state = State::kNote;
      finding.way_out = fmt::format("ip link set {} mtu 1500", netdev.name);
    }
  }
  if (findings.empty()) {
    findings.push_back({"interfaces",
                        State::kProblem,
                        "none that is up has an address, so there are no devices",
                        "ip link set DEV up; ip address add ADDRESS/LENGTH dev DEV",
                        {}});
  }
  return findings;
}

bool blocks(const UdpHolder& holder, const port::Address& address) {
  if (!holder.any_address) return holder.address == address;
  // A socket for all IPv6 addresses mostly takes packets to IPv4 addresses as well.
  return !holder.address.is_ipv4() || address.is_ipv4();
}

const KernelDevice* rxe_among(const DeviceFacts& facts) {
  const auto found = std::ranges::find_if(
      facts.kernel_devices, [](const auto& device) { return !device.netdev.empty(); });
  return found == facts.kernel_devices.end() ? nullptr : &*found;
}

Finding check_port(const DeviceFacts& facts, const port::Address& address) {
  Finding finding{"UDP port 4791 of " + port::to_string(address), {}, {}, {}, {}};
  const auto holder = std::ranges::find_if(
      facts.holders, [&](const UdpHolder& entry) { return blocks(entry, address); });
  if (holder == facts.holders.end()) {
    finding.found = "free for Ferry's programs";
    return finding;
  }
  if (holder->is_ferrys) {
    finding.found = fmt::format("held by {} (pid {}), which passes on what is for others",
                                holder->program, holder->pid);
    return finding;
  }
  constexpr char kEffect[] = ": no RDMA with standard NICs beside it";
  finding.state = State::kProblem;
  if (holder->pid != 0) {
    finding.found = fmt::format("taken by {} (pid {}){}", holder->program, holder->pid, kEffect);
    finding.way_out = fmt::format("end it: kill {}", holder->pid);
  } else if (const KernelDevice* rxe = rxe_among(facts); rxe != nullptr && holder->any_address) {
    finding.found =
        fmt::format("taken by the kernel's {} on {} (rdma_rxe){}", rxe->name, rxe->netdev, kEffect);
    finding.way_out = "rdma link delete " + rxe->name;
  } else if (facts.is_root) {
    finding.found = fmt::format("taken by no process that is seen here{}", kEffect);
    finding.way_out = "see: ss -lunp sport = :4791, in the host's own pid namespace";
  } else {
    finding.state = State::kNote;
    finding.found = fmt::format("taken by a process of user {}, maybe one of Ferry's; if not{}",
                                holder->user, kEffect);
    finding.way_out = "see whose it is: sudo ferry doctor";
  }
  return finding;
}

Finding check_kernel_devices(const DeviceFacts& facts) {
  Finding finding{"the kernel's RDMA devices", {}, "none", {}, {}};
  if (facts.kernel_devices.empty()) return finding;
  finding.found.clear();
  for (const auto& device : facts.kernel_devices) {
    finding.found += (finding.found.empty() ? "" : ", ") + printable(device.name);
  }
  finding.found += ", which programs see after Ferry's";
  return finding;
}

}  // namespace

DeviceFacts device_facts() {
  DeviceFacts facts;
  facts.is_root = ::geteuid() == 0;
  if (void* verbs = ::dlopen("libibverbs.so.1", RTLD_LAZY)) {
    ::dlclose(verbs);
  } else {
    facts.verbs_problem = "libibverbs.so.1 is missing; install the package libibverbs1";
  }
  try {
    facts.library = need_companion("libferry.so");
    facts.library_problem = preload_problem(facts.library);
  } catch (const Failure& failure) {
    facts.library_problem = failure.what();
  }
  facts.netdevs = rnic::list_netdevs(rnic::settings_from_environment());
  facts.kernel_devices = kernel_devices();
  facts.holders = udp_holders(port::kRoceUdpPort, "/proc");
  return facts;
}

Findings check_devices(const DeviceFacts& facts) {
  Findings findings;
  findings.push_back(
      facts.verbs_problem.empty()
          ? Finding{"libibverbs", State::kOk, "libibverbs.so.1 can be loaded", {}, {}}
          : of_failure("libibverbs", facts.verbs_problem));
  findings.push_back(check_library(facts));
  std::ranges::move(check_netdevs(facts), std::back_inserter(findings));
  for (const auto& netdev : facts.netdevs) {
    for (const auto& address : netdev.addresses) findings.push_back(check_port(facts, address));
  }
  findings.push_back(check_kernel_devices(facts));
  findings.push_back({"outside of ferry run",
                      State::kNote,
                      "rdma link and ibv_devices show the kernel's devices only, none of Ferry's",
                      "ferry run -- ibv_devices",
                      {}});
  return findings;
}

}  // namespace ferry::cli::doctor
