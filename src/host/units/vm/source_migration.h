#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "host/image/copy_ahead.h"
#include "host/image/copy_limits.h"
#include "host/units/vm/machine.h"

namespace ferry::host {

// Where the QEMU waits to which a machine moves.
struct MeetingPoint {
  std::string address;
  std::uint16_t port = 0;
  std::string host;  // the name in its certificate

  std::string text() const;
  static MeetingPoint of(const std::string& text);  // throws Failure
};

// QEMU's migration of a machine that leaves, in the order of these calls. Each throws Failure; then
// Machine::take_back() has the machine run here as before.
class SourceMigration {
 public:
  using Progress = CopyAhead::Progress;
  using Check = std::function<void()>;  // throws Failure when the move is given up

  // `tls`: the folder with what QEMU shows to the other one; empty: they talk without TLS, as ferryds do then.
  SourceMigration(Machine& machine, MeetingPoint to, std::string tls);

  // Copies memory while the machine runs. Returns when the machine had better be stopped; QEMU is held back then.
  void copy(const CopyLimits& limits, const std::function<void(const Progress&)>& tell,
            const Check& need_wanted);
  // Throws Failure when QEMU has stopped the machine by itself meanwhile.
  void need_held() const;
  // Lets QEMU go on. Returns when it has stopped the machine.
  void stop_machine(const Check& need_wanted);
  // Has QEMU send the rest, and let go of the disks. Returns when all is sent.
  void switch_over(const Check& need_wanted);

  unsigned rounds() const { return rounds_; }
  std::uint64_t sent_ahead() const { return sent_ahead_; }  // bytes
  std::uint64_t sent() const { return sent_; }

 private:
  void begin(double rate);
  double measure_writes(const Check& need_wanted);
  void limit(std::uint64_t bytes_per_second, double downtime_ms);
  // Looks at the migration; throws Failure when it has failed.
  nlohmann::json look(const Check& need_wanted);
  void await(const std::string& status, const Check& need_wanted);

  Machine& machine_;
  const MeetingPoint to_;
  const std::string tls_;
  double left_ms_ = 0;  // as of copy()
  unsigned rounds_ = 0;
  std::uint64_t sent_ahead_ = 0, sent_ = 0;
};

inline constexpr char kTlsObject[] = "ferry-tls";  // in QEMU

// A folder with this host's certificate and key under the names by which QEMU looks for them; `tls`: ferryd's.
void make_tls_folder(const std::string& folder, const std::string& tls);

}  // namespace ferry::host
