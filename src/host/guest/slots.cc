#include "host/guest/slots.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/failure.h"
#include "base/unique_fd.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

// "0000:02:00.0"
bool is_pci_function(const std::string& name) {
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

// The slot of the PCI function that the device is, or is part of; empty: it is in none. What the function itself is
// behind may be in a slot, too, together with other devices.
fs::path slot_of(fs::path device, const fs::path& slots) {
  while (device.has_relative_path() && !is_pci_function(device.filename())) {
    device = device.parent_path();
  }
  const std::string name = device.filename();
  std::error_code ignored;
  for (fs::directory_iterator slot(slots, ignored), end; slot != end; slot.increment(ignored)) {
    std::string address;
    std::ifstream(slot->path() / "address") >> address;
    if (!address.empty() && address == name.substr(0, name.rfind('.'))) return slot->path();
  }
  return {};
}

}  // namespace

void switch_off_slot(const std::string& interface, const std::string& sysfs) {
  std::error_code error;
  const fs::path device =
      fs::canonical(fs::path(sysfs) / "class/net" / interface / "device", error);
  if (error) return;
  const fs::path slot = slot_of(device, fs::path(sysfs) / "bus/pci/slots");
  if (slot.empty()) {
    throw Failure(fmt::format(
        "the NIC {} is in no slot that can be switched off; plug it into a pcie-root-port",
        interface));
  }
  const UniqueFd power(::open((slot / "power").c_str(), O_WRONLY | O_CLOEXEC));
  if (power && ::write(power.get(), "0", 1) == 1) return;
  throw Failure(fmt::format("cannot switch off the slot {} of the NIC {}: {}",
                            slot.filename().string(), interface, error_text(errno)));
}

}  // namespace ferry::host
