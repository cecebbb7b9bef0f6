#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "base/failure.h"
#include "host/checkpoint/progress.h"

namespace ferry::host {

class Attempts;
struct ThisHost;

// A user has given up what he asked for.
class GivenUp : public Failure {
 public:
  using Failure::Failure;
};

// A checkpoint or a restart, as the user who has asked for it sees it: is told how far it is, and may give it up until
// it is decided.
class Attempt {
 public:
  enum class Kind : std::uint8_t { kCheckpoint, kRestart };

  // `is_awaited`: whether somebody still waits for its end: without that it is given up.
  Attempt(Attempts& all, const ThisHost& host, Kind kind, Progress::Tell tell,
          std::function<bool()> is_awaited);
  ~Attempt();
  Attempt(const Attempt&) = delete;

  Progress& progress() { return progress_; }
  // Throws GivenUp; and Failure: this ferryd ends.
  void need_wanted();
  // As need_wanted(); and when it returns it cannot be given up any more.
  void decide();
  // From any thread. Throws Failure: it is too late.
  void give_up();

 private:
  enum class State : std::uint8_t { kOpen, kGivenUp, kDecided };

  Attempts& all_;
  const ThisHost& host_;
  const Kind kind_;
  const std::function<bool()> is_awaited_;
  const std::uint64_t id_;
  Progress progress_;
  std::mutex mutex_;
  State state_ = State::kOpen;  // with the mutex
};

// Those that this ferryd was asked for, and that have not ended.
class Attempts {
 public:
  // Throws Failure: it has ended, or is decided.
  void give_up(std::uint64_t id);

 private:
  friend class Attempt;

  std::mutex mutex_;
  std::map<std::uint64_t, Attempt*> all_;
};

}  // namespace ferry::host
