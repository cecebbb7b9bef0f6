#include "host/move/source/kernel/wanted_devices.h"

#include <fmt/format.h>

#include "base/failure.h"
#include "device/own_names.h"

namespace ferry::host {

std::map<std::string, std::string> wanted_devices(const std::string& program,
                                                  const std::vector<std::string>& wanted,
                                                  const std::set<std::string>& devices) {
  std::map<std::string, std::string> chosen;
  for (const auto& entry : wanted) {
    const std::size_t equals = entry.find('=');
    std::string old = equals == std::string::npos ? "" : entry.substr(0, equals);
    const std::string there = equals == std::string::npos ? entry : entry.substr(equals + 1);
    if (there.empty() || equals == 0) {
      throw Failure(fmt::format("--to-device {}: not NAME or OLD=NEW", printable(entry)));
    }
    if (devices.empty()) {
      throw Failure(
          fmt::format("'{}' uses no RDMA device of the kernel; move it without --to-device {}",
                      program, printable(entry)));
    }
    if (old.empty() && devices.size() > 1) {
      throw Failure(fmt::format("'{}' uses {}; say which is to become {}: --to-device {}={}",
                                program, fmt::join(devices, " and "), printable(there),
                                *devices.begin(), printable(there)));
    }
    if (old.empty()) old = *devices.begin();
    if (!devices.contains(old)) {
      throw Failure(fmt::format("--to-device {}: '{}' uses {}", printable(entry), program,
                                fmt::join(devices, " and ")));
    }
    if (!chosen.emplace(old, there).second) {
      throw Failure(fmt::format("--to-device {}: {} is to become {} already", printable(entry), old,
                                chosen[old]));
    }
  }
  return chosen;
}

void need_devices_of_kernel(const std::string& program,
                            const std::map<std::string, std::string>& wanted) {
  for (const auto& [old, there] : wanted) {
    if (!device::is_own_name(there)) continue;
    throw Failure(fmt::format(
        "'{}' uses rdma_cm of the kernel, which does not know {}, Ferry's own RNIC; move it to a "
        "device of the kernel",
        program, printable(there)));
  }
}

}  // namespace ferry::host
