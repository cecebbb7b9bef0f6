#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "host/units/container/container.h"

// The containers that a former ferryd of this host restored: their programs have lost the parent
// that would have told how they ended. Sees to it that their end is recorded all the same, and that
// their network is released.
namespace ferry::host {

class Orphans {
 public:
  // Status of a program that ended unseen, or on a kernel that does not tell (before 6.15).
  static constexpr int kUnknownStatus = 255;

  // `containers`: all on this host. `stopping`: this ferryd ends; the next one records how they
  // end.
  Orphans(const std::vector<Container>& containers, const std::atomic<bool>& stopping);
  // `stopping` is set before.
  ~Orphans();

 private:
  void watch(const Container& container);

  const std::atomic<bool>& stopping_;
  std::vector<std::thread> watchers_;
};

}  // namespace ferry::host
