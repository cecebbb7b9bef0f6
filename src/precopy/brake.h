#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "base/unique_fd.h"
#include "precopy/pace.h"

namespace ferry::precopy {

// Slows the thread that made it down to a pace, and lowers its priority, for as long as it lives.
class Brake {
 public:
  // `sharers`: counts the threads that share the floor and the rate; null: it is alone.
  explicit Brake(const PaceSettings& settings, std::atomic<unsigned>* sharers = nullptr);
  ~Brake();
  Brake(const Brake&) = delete;
  Brake& operator=(const Brake&) = delete;

  // Before the next piece, after so many bytes: waits for as long as the pace wants. Meanwhile it calls `go_on`, which
  // may throw, many times a second.
  void after(std::uint64_t bytes, const std::function<void()>& go_on);

  Pace& pace() { return pace_; }
  std::chrono::nanoseconds waited() const { return waited_; }  // in all

 private:
  void read_idle();

  std::atomic<unsigned>* const sharers_;
  const UniqueFd stat_;
  const int niceness_;  // before
  cpu_set_t processors_;
  Pace pace_;
  const std::chrono::nanoseconds began_, processor_began_;
  std::chrono::nanoseconds idle_began_{0};
  Pace::Used used_;
  std::chrono::nanoseconds waited_{0};
};

// The time that these processors have been idle, by the text of /proc/stat (proc_stat(5)), with the length of its unit.
// None: the text does not have them.
std::optional<std::chrono::nanoseconds> idle_time(std::string_view stat,
                                                  const cpu_set_t& processors,
                                                  std::chrono::nanoseconds jiffy);

}  // namespace ferry::precopy
