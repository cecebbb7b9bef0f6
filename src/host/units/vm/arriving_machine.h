#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "host/units/vm/machine.h"
#include "host/units/vm/machine_record.h"
#include "host/units/vm/source_migration.h"

namespace ferry::host {

struct ThisHost;

// The QEMU of a machine that arrives: a child of ferryd that waits for what the QEMU at the source sends, and does not
// let the machine run.
class ArrivingMachine {
 public:
  // Starts QEMU. `record`: of the machine, with the command; its process is added. `tls`: ferryd's folder of
  // certificates; empty: none. `source`: the name of the host in the certificate that the other QEMU has to show.
  // Throws Failure, and leaves nothing.
  ArrivingMachine(const ThisHost& host, const MachineRecords& records, MachineRecord record,
                  const std::string& tls, const std::string& source);
  // Ends it, unless it was let go.
  ~ArrivingMachine();

  pid_t pid() const { return record_.pid; }
  const MachineRecord& record() const { return record_; }
  // Where the QEMU at the source finds it.
  MeetingPoint meeting_point() const { return point_; }

  // Returns when all is there, with the NICs. Throws Failure when it has ended, which ending it brings about.
  void await_all();
  // Throws Failure when it does not run, which is tried again and again.
  void run();
  // From now on it is the machine: it does not end with this object.
  void let_go() { is_let_go_ = true; }

 private:
  void start();
  std::string end_of_log() const;
  void listen(const std::string& tls, const std::string& source);

  const ThisHost& host_;
  const MachineRecords& records_;
  MachineRecord record_;
  const std::string folder_;
  std::unique_ptr<Machine> machine_;
  MeetingPoint point_;
  bool is_let_go_ = false;
};

}  // namespace ferry::host
