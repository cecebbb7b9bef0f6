#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/units/vm/qemu_command.h"

// Machines of this host: each has a folder, FOLDER/NAME, with
//
//   machine.json  its record: the command that started it, as its user gave it, and its QEMU's process
//   qmp, guest    sockets of its QEMU: the monitor, and the machine's serial port for ferryd
//   tls           what QEMU shows to the QEMU at the other end of a move, and whom it believes
//   log           what its QEMU prints, if a move has brought it here
namespace ferry::host {

inline constexpr char kMachines[] = "/run/ferry/vm";

struct MachineRecord {
  std::string name;
  std::vector<std::string> command, nics;  // QemuCommand
  std::string directory;                   // in which the command was given
  pid_t pid = 0;                           // of QEMU
  std::uint64_t started = 0;               // start_time() of that process
  bool is_arriving = false;                // no commit has let it run here yet

  bool is_alive() const;
  QemuCommand qemu() const { return {command, nics}; }
};

class MachineRecords {
 public:
  explicit MachineRecords(std::string folder = kMachines) : folder_(std::move(folder)) {}

  // Throws Failure when no machine can have this name.
  static void need_name(const std::string& name);

  std::string folder_of(const std::string& name) const { return folder_ + "/" + name; }
  // Nothing: there is no such machine, or its record cannot be read.
  std::optional<MachineRecord> find(const std::string& name) const;
  std::vector<MachineRecord> all() const;

  // Makes the machine's folder, if need be. Throws Failure.
  void write(const MachineRecord& record) const;
  // The same in two steps, of which only the first can fail on a full disk.
  void stage(const MachineRecord& record) const;
  void publish(const std::string& name) const;
  // Removes the folder.
  void remove(const std::string& name) const;

 private:
  const std::string folder_;
};

}  // namespace ferry::host
