#include "host/units/vm/vm_unit.h"

#include <fmt/core.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "guest.pb.h"
#include "host/peers/this_host.h"
#include "host/proc/scope.h"
#include "host/units/vm/arriving_machine.h"
#include "host/units/vm/guest_spans.h"
#include "host/units/vm/guest_talk.h"
#include "host/units/vm/machine.h"
#include "host/units/vm/source_migration.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookLimit{10000};  // for the guest to say what programs it has
constexpr char kQemuLane[] = "QEMU";

}  // namespace

// What is open on the source while the machine leaves.
struct VmUnit::Leaving {
  Leaving(const std::string& folder, const MachineRecord& record, const std::string& point,
          const std::string& tls)
      : machine(folder, record.qemu().nics()), migration(machine, MeetingPoint::of(point), tls) {}

  Machine machine;
  SourceMigration migration;
  std::optional<Clock::time_point> paused;
};

VmUnit::VmUnit(const VmHost& host, MachineRecord record)
    : Unit(record.name, record.pid), host_(host), record_(std::move(record)) {}

VmUnit::VmUnit(const VmHost& host, std::unique_ptr<ArrivingMachine> arriving)
    : Unit(arriving->record().name, 0),
      host_(host),
      record_(arriving->record()),
      arriving_(std::move(arriving)) {}

VmUnit::~VmUnit() = default;

std::string VmUnit::details() const {
  const std::string version = record_.is_alive() && !record_.is_arriving
                                  ? Machine(folder(), record_.qemu().nics()).qemu_version()
                                  : std::string();
  return json_text({{"command", record_.command},
                    {"nics", record_.nics},
                    {"directory", record_.directory},
                    {"qemu", version},
                    {"memory", resident_bytes_of_tree(record_.pid)}});
}

std::string VmUnit::instance_of(const MachineRecord& record) {
  return fmt::format("{}:{}:{}:{}", kKind, record.name, record.pid, record.started);
}

std::string VmUnit::instance() const {
  return instance_of(record_);
}

std::vector<std::string> VmUnit::macs() const {
  std::vector<std::string> macs;
  for (const auto& nic : record_.qemu().nics()) macs.push_back(nic.mac);
  return macs;
}

void VmUnit::switch_network(const std::string& command) const {
  if (command != "activate") return;
  std::unique_lock lock(mutex_);
  if (arriving_) {
    const auto step = timeline_.step(kQemuLane, "the machine goes on");
    return arriving_->run();
  }
  lock.unlock();
  if (!is_back_) take_back();
}

// After a move that was given up, and after a ferryd that was ended in the middle of one.
void VmUnit::take_back() const {
  leaving_.reset();  // QEMU's monitor has one connection at a time
  Machine machine(folder(), record_.qemu().nics());
  machine.take_back();
  // The guest may be unplugging a NIC still, for a request that nobody waits for any more. It answers the next one
  // after that.
  call_back([&machine] { machine.plug(); });
  machine.plug();
  is_back_ = true;
}

// Has the guest's programs come back. Nothing: they have not, as the log says.
std::optional<v1::GuestReply> VmUnit::call_back(const NeedWanted& meanwhile) const {
  const auto nics = macs();
  if (nics.empty()) return std::nullopt;
  try {
    return GuestTalk(folder(), name()).come_back(host_.host.limits.resume * 3 / 4, meanwhile);
  } catch (const std::exception& failure) {
    log::warn("{}", failure.what());
    return std::nullopt;
  }
}

void VmUnit::stage(State state, pid_t, const std::string&) const {
  if (state != State::kRunning || !record_.is_arriving) return;
  MachineRecord record = record_;
  record.is_arriving = false;
  host_.records.stage(record);
}

void VmUnit::publish() const {
  if (record_.is_arriving) host_.records.publish(name());
}

// The record of a machine says that it arrives until it has run here.
void VmUnit::correct(State from, State state, pid_t root, const std::string& to) const {
  if (from != State::kRestoring || !record_.is_arriving) return;
  Machine machine(folder(), record_.qemu().nics());
  if (machine.state() == "paused") {
    machine.plug();
    machine.run();
  }
  stage(state, root, to);
  publish();
}

void VmUnit::need_mover(uid_t user) const {
  if (user != 0)
    throw Failure(fmt::format("'{}' is a virtual machine, which root may move", name()));
}

void VmUnit::want(const Extras& extras) {
  if (!extras.rootfs && extras.stdio.empty()) return;
  throw Failure(fmt::format("'{}' {}", name(), kOnlyRunc));
}

void VmUnit::need_movable() const {
  const auto qemu = record_.qemu();
  if (const auto state = Machine(folder(), qemu.nics()).state(); state != "running") {
    throw Failure(
        fmt::format("the machine '{}' does not run (QEMU says: {}); let it run to move it", name(),
                    printable(state)));
  }
  if (!qemu.nics().empty()) GuestTalk(folder(), name()).look(macs(), kLookLimit);
}

std::set<std::string> VmUnit::needed_files() const {
  return record_.qemu().files();
}

void VmUnit::meet(const std::string& point) const {
  if (!host_.tls.empty()) make_tls_folder(folder() + "/tls", host_.tls);
  is_back_ = false;
  leaving_ = std::make_unique<Leaving>(folder(), record_, point,
                                       host_.tls.empty() ? host_.tls : folder() + "/tls");
}

Unit::Ahead VmUnit::copy_ahead(const CopyLimits& limits, const TellAhead& tell,
                               const NeedWanted& need_wanted) const {
  leaving_->migration.copy(limits, tell, need_wanted);
  return {leaving_->migration.rounds(), leaving_->migration.sent_ahead()};
}

void VmUnit::stop_inside(milliseconds limit, const NeedWanted& need_wanted) const {
  const auto nics = macs();
  if (nics.empty()) return;
  note_spans(GuestTalk(folder(), name()).leave(nics, host_.host.limits.standstill, 2 * limit, [&] {
    need_wanted();
    leaving_->migration.need_held();
  }));
  const auto step = timeline_.step(kQemuLane, "the guest lets go of its NICs");
  leaving_->machine.await_unplugged(Clock::now() + limit);
}

void VmUnit::note_spans(const v1::GuestReply& reply) const {
  for (auto& span : guest_spans(reply, name(), Clock::now())) timeline_.add(std::move(span));
}

std::string VmUnit::dump(CriuRunner&, CriuRunner::Dump dump, std::atomic<pid_t>*) const {
  std::string error;
  try {
    dump.pause();
    {
      const auto step = timeline_.step(kQemuLane, "the machine is stopped");
      leaving_->migration.stop_machine(dump.need_wanted);
    }
    leaving_->paused = Clock::now();
    dump.freeze();
    dump.leave_network();
    {
      const auto step = timeline_.step(kQemuLane, "the rest of its memory is sent");
      leaving_->migration.switch_over(dump.need_wanted);
    }
    const int answer = dump.written();
    if (answer == 0) {
      report_failure([this] { leaving_->machine.quit(); });
      return {};
    }
    error = "the machine was not let go";
    if (answer == EAGAIN) return error;  // the next ferryd hears how it was decided
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  dump.failed();
  report_failure([this] { take_back(); });
  return error;
}

std::optional<Unit::Clock::time_point> VmUnit::paused() const {
  return leaving_ ? leaving_->paused : std::nullopt;
}

void VmUnit::left() const {
  host_.records.remove(name());
}

std::string VmUnit::meeting_point() const {
  std::lock_guard lock(mutex_);
  return arriving_ ? arriving_->meeting_point().text() : std::string();
}

std::string VmUnit::restore(CriuRunner&, CriuRunner::Restore restore,
                            std::atomic<pid_t>* pid) const {
  *pid = record_.pid;
  try {
    {
      const auto step = timeline_.step(kQemuLane, "the machine arrives, and gets its NICs");
      arriving_->await_all();
    }
    if (const int answer = restore.restored(record_.pid); answer != 0) {
      if (answer == EAGAIN) arriving_->let_go();  // the next ferryd hears how it was decided
      return "the machine was not let go on";
    }
  } catch (const std::exception& failure) {
    return failure.what();
  }
  // It runs since switch_network("activate").
  arriving_->let_go();
  {
    std::lock_guard lock(mutex_);
    arriving_.reset();
  }
  if (const auto reply = call_back({})) {
    note_spans(*reply);
    std::lock_guard lock(mutex_);
    for (const auto& program : reply->programs()) {
      inner_programs_.push_back({program.pid(), program.name(), program.stood_still_ms()});
    }
  }
  return {};
}

std::vector<Unit::InnerProgram> VmUnit::inner_programs() const {
  std::lock_guard lock(mutex_);
  return inner_programs_;
}

void VmUnit::settle(pid_t root) const {
  give_scope(root, name());
}

// Ends with its QEMU, which its user or its guest has ended; or it has moved on.
bool VmUnit::end(int) const {
  const auto now = host_.records.find(name());
  if (!now || now->pid != record_.pid || now->started != record_.started) return false;
  host_.records.remove(name());
  return true;
}

void VmUnit::forget() const {
  std::lock_guard lock(mutex_);
  arriving_.reset();
}

}  // namespace ferry::host
