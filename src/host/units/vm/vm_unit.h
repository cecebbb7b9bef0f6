#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/units/unit.h"
#include "host/units/vm/machine_record.h"

namespace ferry::v1 {
class GuestReply;
}

// Virtual machines of QEMU, started by `ferry vm run` or by a move (docs/vm.md; Nomad, section 4). QEMU copies a
// machine's memory. The ferryd in the machine has the programs there leave their RDMA devices before the NICs below
// these are unplugged, and enter those of the other host's NICs afterwards.
namespace ferry::host {

class ArrivingMachine;
class Machine;
class SourceMigration;
struct ThisHost;

// What machines need of this host.
struct VmHost {
  const ThisHost& host;
  MachineRecords records;
  std::string tls;  // ferryd's folder of certificates; empty: ferryds, and QEMUs, talk without them
};

class VmUnit : public Unit {
 public:
  static constexpr char kKind[] = "vm";

  // Of a QEMU: a machine that comes back has another one.
  static std::string instance_of(const MachineRecord& record);

  // A machine that runs here, or has run here.
  VmUnit(const VmHost& host, MachineRecord record);
  // One that arrives.
  VmUnit(const VmHost& host, std::unique_ptr<ArrivingMachine> arriving);
  ~VmUnit() override;

  std::string kind() const override { return kKind; }
  std::string details() const override;
  std::string instance() const override;
  bool needs_criu() const override { return false; }
  // A machine that does not run is on no network: "activate" has it run.
  void switch_network(const std::string& command) const override;
  void stage(State state, pid_t root, const std::string& to) const override;
  void publish() const override;
  void correct(State from, State state, pid_t root, const std::string& to) const override;

  void need_mover(uid_t user) const override;
  void want(const Extras& extras) override;
  void need_movable() const override;
  std::set<std::string> needed_files() const override;
  void meet(const std::string& point) const override;
  Ahead copy_ahead(const CopyLimits& limits, const TellAhead& tell,
                   const NeedWanted& need_wanted) const override;
  void stop_inside(std::chrono::milliseconds limit, const NeedWanted& need_wanted) const override;
  std::string dump(CriuRunner& criu, CriuRunner::Dump dump, std::atomic<pid_t>* pid) const override;
  std::optional<Clock::time_point> paused() const override;
  void left() const override;

  std::string meeting_point() const override;
  std::string restore(CriuRunner& criu, CriuRunner::Restore restore,
                      std::atomic<pid_t>* pid) const override;
  std::vector<InnerProgram> inner_programs() const override;
  std::vector<Timeline::Span> spans() const override { return timeline_.spans(); }
  void settle(pid_t root) const override;
  bool end(int status) const override;
  void forget() const override;

 private:
  struct Leaving;
  void take_back() const;
  void note_spans(const v1::GuestReply& reply) const;
  std::string folder() const { return host_.records.folder_of(record_.name); }
  std::vector<std::string> macs() const;
  std::optional<v1::GuestReply> call_back(const NeedWanted& meanwhile) const;

  const VmHost& host_;
  const MachineRecord record_;
  mutable std::unique_ptr<Leaving> leaving_;
  mutable bool is_back_ = false;  // after a move that was given up
  mutable std::mutex mutex_;
  mutable std::unique_ptr<ArrivingMachine> arriving_;
  mutable std::vector<InnerProgram> inner_programs_;
  mutable Timeline timeline_;
};

}  // namespace ferry::host
