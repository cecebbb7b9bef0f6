#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/detach/detached_program.h"
#include "host/move/source/source_side.h"

// Programs leave devices of the kernel so that these can be unplugged, reset or made anew, and enter them again.
namespace ferry::host {

class Departures;

// The programs of this host that use any of some devices, while they are without them.
class Detachment {
 public:
  using Tell = std::function<void(const std::string&)>;  // of a line

  Detachment(const SourceSide& side, std::set<std::string> devices,
             std::vector<Units::Found> programs);

  const std::set<std::string>& devices() const { return devices_; }
  std::string device_names() const;  // for people, with commas
  const std::vector<std::unique_ptr<DetachedProgram>>& programs() const { return programs_; }

  // Returns when nobody has the devices open any more. Throws Failure, one line; then all go on.
  void leave();
  // Returns when the devices have what all programs need, and they have opened them, or have ended. `tell` gets each
  // new reason to wait. Throws Failure when this ferryd ends before that; the next one goes on with it.
  void enter(const Tell& tell) const;

 private:
  const SourceSide& side_;
  const std::set<std::string> devices_;
  std::vector<std::unique_ptr<DetachedProgram>> programs_;
};

class Detachments {
 public:
  Detachments(const SourceSide& side, const Departures& departures)
      : side_(side), departures_(departures) {}

  struct User {
    Units::Found program;
    std::size_t qps = 0;  // on the devices
  };

  // Finds the programs that use any of the devices. Only root may ask: they are of all users. Throws Failure, one line.
  std::shared_ptr<Detachment> begin(uid_t user, const std::set<std::string>& devices);
  // Only looks which programs begin() would find. Throws Failure, one line, when they could not leave.
  std::vector<User> look(const std::set<std::string>& devices) const;
  // A program of a detachment that is not over; null: none.
  std::shared_ptr<UnderWay> find(std::uint64_t id) const;
  // This process has its devices: it has never left them, or has come back by itself.
  void registered(pid_t pid) const;
  // Throws Failure when this program, or a part of it, is one of them.
  void need_attached(pid_t root) const;

 private:
  std::vector<User> users_of(const std::set<std::string>& devices) const;
  // Throw Failure.
  void need_not_away(const std::set<std::string>& devices, const std::vector<User>& users) const;
  void need_not_moving(const std::vector<User>& users) const;
  std::vector<std::shared_ptr<Detachment>> all() const;
  std::vector<std::shared_ptr<Detachment>> living() const;  // called with mutex_ held

  const SourceSide side_;
  const Departures& departures_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Detachment>> all_;  // also those that are over
};

}  // namespace ferry::host
