#pragma once

#include <set>
#include <string>
#include <vector>

namespace ferry::host {

// A NIC of a machine that a move unplugs here and plugs there, as QEMU's command line describes it.
struct MachineNic {
  std::string id;
  std::string device;  // "virtio-net-pci,id=nic1,netdev=net1,bus=port1,mac=52:54:00:12:34:56"
  std::string netdev;  // "tap,id=net1,script=/etc/qemu-ifup"
  std::string netdev_id, mac;
};

// The command that starts a machine, as its user gives it to `ferry vm run`.
class QemuCommand {
 public:
  // `nics`: ids of the devices that moves unplug. Throws Failure: QEMU could not be started so on another host.
  QemuCommand(std::vector<std::string> words, const std::vector<std::string>& nics);

  const std::vector<std::string>& words() const { return words_; }
  std::vector<MachineNic> nics() const { return nics_; }

  // The command for a new machine, whose sockets are in `folder`.
  std::vector<std::string> for_start(const std::string& folder) const;
  // For one that arrives: without the NICs, and waiting for what QEMU's migration brings.
  std::vector<std::string> for_arrival(const std::string& folder) const;
  // Files that the machine has as disks, kernel and firmware: the other host needs them under the same names.
  std::set<std::string> files() const;

 private:
  std::vector<std::string> words_;
  std::vector<MachineNic> nics_;
};

// Of its folder.
std::string monitor_of(const std::string& folder);  // QMP
std::string guest_port_of(
    const std::string& folder);  // the other end of the machine's serial port kGuestPort

}  // namespace ferry::host
