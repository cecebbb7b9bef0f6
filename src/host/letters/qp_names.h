#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "device/movable.h"
#include "host/proc/udp_slots.h"
#include "host/standin/residents.h"

namespace ferry::host {

// The names of QPs over devices of the kernel for which a process may write and get letters: names of QPs that it has,
// as the kernel tells; names of QPs that it had and for which it has written or got letters, since QPs are made anew
// when their peers move; and names that it has brought from another host, as the ferryd there has told (Nomad, 5.1). A
// process to which ferryd has given an RNIC of Ferry's own in the place of a device of the kernel has all QPNs of that
// RNIC's slot, as the kernel tells as well.
class QpNames {
 public:
  class Own {
   public:
    bool has(const device::Letter::End& name) const;
    // The GIDs under which the process has names.
    std::set<port::Address> gids() const;

   private:
    friend class QpNames;
    std::set<device::Letter::End> names_;
    // Of an RNIC of Ferry's own: its slots, and the GIDs by which its QPs are known besides those of the slots.
    std::vector<UdpSlot> slots_;
    std::set<port::Address> gids_of_slots_;
  };

  // What the kernel tells. Each throws Failure.
  struct Kernel {
    using Names = std::vector<device::Letter::End>;
    // For each of the processes the names of its QPs, and for each GID of the devices that it has opened a name without
    // a QPN.
    std::function<std::map<pid_t, Names>(const std::set<pid_t>&)> names_of;
    // The subset of the names given that are QPs of any process of this host.
    std::function<std::set<device::Letter::End>(const Names&)> there_are;
    // Has the next calls look at GIDs again, since those seen before may be old.
    std::function<void()> look_again = [] {};
    // Looks now at what takes long to see, so that it is known when a program comes.
    std::function<void()> look_ahead = [] {};
    // The GIDs of this host's devices of the kernel.
    std::function<std::set<port::Address>()> gids = [] { return std::set<port::Address>(); };
    // The slots of the RNICs of Ferry's own that a process has.
    std::function<std::vector<UdpSlot>(pid_t)> slots_of = [](pid_t) {
      return std::vector<UdpSlot>();
    };
  };

  explicit QpNames(Residents& residents) : QpNames(residents, this_kernel()) {}
  QpNames(Residents& residents, Kernel kernel)
      : residents_(residents), kernel_(std::move(kernel)) {}

  Own of(pid_t pid) const { return of(std::set{pid}).at(pid); }
  // The same of several processes, for which the kernel is asked once.
  std::map<pid_t, Own> of(const std::set<pid_t>& pids) const;
  // Those that the process has brought, or for which it has written or got letters: the kernel is not asked.
  Own remembered(pid_t pid) const;
  // The same as of(), for a caller that has missed a name: the device may have got a GID since.
  Own of_again(pid_t pid) const {
    kernel_.look_again();
    return of(pid);
  }
  void look_ahead() const { kernel_.look_ahead(); }
  // The subset of `names` that are QPs of any process of this host; none when the kernel cannot be asked.
  std::set<device::Letter::End> there_are(const std::vector<device::Letter::End>& names) const;
  // Remembers that letters go to or come from QPs of these names, which are the processes' own.
  void remember(const std::map<pid_t, std::set<device::Letter::End>>& names) {
    residents_.know(names);
  }
  // The processes of which one of the names is remembered.
  std::set<pid_t> who_had(const std::set<device::Letter::End>& names) const {
    return residents_.who_had(names);
  }

 private:
  static Kernel this_kernel();
  Own with_slots(const Residents::Resident& resident, const Kernel::Names& by_kernel) const;

  Residents& residents_;
  const Kernel kernel_;
};

}  // namespace ferry::host
