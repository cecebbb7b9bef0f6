#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "device/movable.h"
#include "host/standin/residents.h"

namespace ferry::host {

// By which names of QPs over devices of the kernel a process may be spoken to, and speak: those of
// the QPs that it has, as the kernel tells; those of QPs that it had, and in whose names it has been
// spoken to, for QPs are made anew when their peers move; and those that it has brought from another
// host, as the ferryd there has told (Nomad, 5.1).
class QpNames {
 public:
  class Own {
   public:
    bool has(const device::Letter::End& name) const { return names_.contains(name); }
    const std::set<device::Letter::End>& all() const { return names_; }

   private:
    friend class QpNames;
    std::set<device::Letter::End> names_;
  };

  // What the kernel tells. Each throws Failure.
  struct Kernel {
    // The names of a process's QPs, and those without a QPN for the GIDs of the devices that it has
    // opened.
    std::function<std::vector<device::Letter::End>(pid_t)> names_of;
    // Which of these names QPs of this host have, of whatever process.
    using Names = std::vector<device::Letter::End>;
    std::function<std::set<device::Letter::End>(const Names&)> there_are;
    // What was seen of GIDs may be old: the next calls look again.
    std::function<void()> look_again = [] {};
    // Looks now at what takes long to see, so that it is known when a program comes.
    std::function<void()> look_ahead = [] {};
  };

  explicit QpNames(Residents& residents) : QpNames(residents, this_kernel()) {}
  QpNames(Residents& residents, Kernel kernel)
      : residents_(residents), kernel_(std::move(kernel)) {}

  Own of(pid_t pid) const;
  // The same, when a name was missed: the device may have got a GID since.
  Own of_again(pid_t pid) const {
    kernel_.look_again();
    return of(pid);
  }
  void look_ahead() const { kernel_.look_ahead(); }
  // Of these names, those of QPs of this host, of whatever process.
  std::set<device::Letter::End> there_are(const std::vector<device::Letter::End>& names) const;
  // A letter goes to or comes from this QP of the process, whose own it is.
  void remember(pid_t pid, const device::Letter::End& name) { residents_.know(pid, name); }

 private:
  static Kernel this_kernel();

  Residents& residents_;
  const Kernel kernel_;
};

}  // namespace ferry::host
