#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "device/movable.h"
#include "host/directory/directory.h"

namespace ferry::host {

// The places of RNICs of this host's processes whose sockets ferryd itself has given them, after a move or a stop that
// was taken back; and the names of QPs that programs have brought, or by which peers know programs. ferryd compares
// with these what a process says of the names of its RNICs and QPs. They are in a file, because processes live longer
// than a ferryd.
class Residents {
 public:
  struct Resident {
    pid_t pid = 0;
    std::uint64_t network = 0;  // inode of its sockets' network namespace; 0: not known
    std::vector<Place> places;
    std::vector<device::Letter::End> names = {};  // of QPs over devices of the kernel
    // It has come with a device of the kernel, and goes on with an RNIC of Ferry's own.
    bool has_fallen_back = false;

    bool operator==(const Resident&) const = default;
  };

  // Takes up what the file says of processes that are still there. A file that is damaged, or cannot be written, costs
  // one line in the log each time; the next ferryd then does not know the residents.
  explicit Residents(std::string path);

  // Notes that the processes have, or had, QPs of these names.
  void know(const std::map<pid_t, std::set<device::Letter::End>>& names);
  // Notes the places and names that the process has from now on.
  void settle(const Resident& resident);
  // Forgets a process, which has moved on.
  void forget(pid_t pid);

  // Gives a Resident without places when ferryd has given the process nothing.
  Resident of(pid_t pid) const;
  std::vector<Resident> all() const;
  // The processes that have, or had, a QP of one of these names.
  std::set<pid_t> who_had(const std::set<device::Letter::End>& names) const;
  // Takes out the processes that have ended, and gives their places.
  std::vector<Place> take_ended();

 private:
  struct Entry {
    Resident resident;
    std::uint64_t started = 0;
    UniqueFd process;  // pidfd
  };
  void load();
  // Called with mutex_ held. True: it is news.
  bool enter(const Resident& resident);
  void save() const;

  const std::string path_;
  mutable std::mutex mutex_;
  std::map<pid_t, Entry> entries_;
};

}  // namespace ferry::host
