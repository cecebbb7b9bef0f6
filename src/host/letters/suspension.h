#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace ferry::host {

class ControlServer;

// Before a program stops, has the peers of its QPs over devices of the kernel hold their requests, and wait until the
// requests that their devices already have are done (docs/any_rnic.md).
class Suspension {
 public:
  // Returns when all peers are suspended. Throws Failure when one is not suspended within `limit`; then all go on.
  Suspension(ControlServer& control, std::vector<pid_t> processes, std::uint64_t move_id,
             std::chrono::milliseconds limit);
  // Has the peers go on, except those of processes that have stopped since.
  ~Suspension();
  Suspension(const Suspension&) = delete;

 private:
  void suspend(pid_t process, std::chrono::steady_clock::time_point deadline);
  void release();

  ControlServer& control_;
  const std::vector<pid_t> processes_;
  const std::uint64_t move_id_;
  const std::chrono::milliseconds limit_;
};

}  // namespace ferry::host
