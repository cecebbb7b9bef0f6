#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/detach/detached_program.h"
#include "host/move/source/source_side.h"

// Programs leave a device of the kernel so that it can be unplugged, reset or made anew, and enter it again.
namespace ferry::host {

class Departures;

// The programs of this host that use one device, while they are without it.
class Detachment {
 public:
  using Tell = std::function<void(const std::string&)>;  // of a line

  Detachment(const SourceSide& side, std::string device, std::vector<Units::Found> programs);

  const std::string& device() const { return device_; }
  const std::vector<std::unique_ptr<DetachedProgram>>& programs() const { return programs_; }

  // Returns when nobody has the device open any more. Throws Failure, one line; then all go on.
  void leave();
  // Returns when the device has what all programs need, and they have opened it, or have ended. `tell` gets each new
  // reason to wait. Throws Failure when this ferryd ends before that; the next one goes on with it.
  void enter(const Tell& tell) const;

 private:
  const SourceSide& side_;
  const std::string device_;
  std::vector<std::unique_ptr<DetachedProgram>> programs_;
};

class Detachments {
 public:
  Detachments(const SourceSide& side, const Departures& departures)
      : side_(side), departures_(departures) {}

  // Finds the programs that use the device. Only root may ask: they are of all users. Throws Failure, one line.
  std::shared_ptr<Detachment> begin(uid_t user, const std::string& device);
  // A program of a detachment that is not over; null: none.
  std::shared_ptr<UnderWay> find(std::uint64_t id) const;
  // This process has its devices: it has never left them, or has come back by itself.
  void registered(pid_t pid) const;
  // Throws Failure when this program, or a part of it, is one of them.
  void need_attached(pid_t root) const;

 private:
  std::vector<Units::Found> programs_with(const std::string& device) const;
  std::vector<std::shared_ptr<Detachment>> all() const;

  const SourceSide side_;
  const Departures& departures_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Detachment>> all_;
};

}  // namespace ferry::host
