#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "host/checkpoint/meter.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/messages.h"

namespace ferry::host {

// How far a checkpoint or a restart is: which phase it is in, and how much of that all its hosts have done.
class Progress {
 public:
  // Called by one thread at a time; must not wait.
  using Tell = std::function<void(const v1::CheckpointProgress& progress)>;
  struct Phase {
    std::string name;
    std::string
        with_bytes;  // phase that it becomes with the first bytes; empty: it stays what it is
    std::string after_bytes;  // ... when all hosts have done theirs
  };

  // `attempt`: as in CheckpointProgress.
  Progress(std::uint64_t attempt, Tell tell);
  Progress(const Progress&) = delete;

  // These two in the thread that leads the hosts, and tell at once.
  void begin(Phase phase);
  void stood_still(double milliseconds);
  // From any thread. The last that is told.
  void give_up();
  // What one more host calls during phases that have bytes; no longer than this lives.
  TellBytes of_host();

 private:
  void set(std::size_t host, const StepBytes& bytes);
  void become(const std::string& phase);
  void tell() const;

  const std::uint64_t attempt_;
  const Tell tell_;
  std::mutex mutex_;
  std::size_t hosts_ = 0;
  Phase phase_;
  Meter meter_;
  Seldom seldom_;
  double standstill_ms_ = 0;
  bool is_given_up_ = false;
};

}  // namespace ferry::host
