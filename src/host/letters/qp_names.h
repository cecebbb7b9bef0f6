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

   private:
    friend class QpNames;
    std::set<device::Letter::End> names_;
  };

  // The names that a process has according to the kernel. Throws Failure.
  using OfKernel = std::function<std::vector<device::Letter::End>(pid_t)>;

  explicit QpNames(Residents& residents) : QpNames(residents, names_by_kernel) {}
  QpNames(Residents& residents, OfKernel of_kernel)
      : residents_(residents), of_kernel_(std::move(of_kernel)) {}

  Own of(pid_t pid) const;
  // A letter goes to or comes from this QP of the process, whose own it is.
  void remember(pid_t pid, const device::Letter::End& name) { residents_.know(pid, name); }

 private:
  static std::vector<device::Letter::End> names_by_kernel(pid_t pid);

  Residents& residents_;
  const OfKernel of_kernel_;
};

}  // namespace ferry::host
