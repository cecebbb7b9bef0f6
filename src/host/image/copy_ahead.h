#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/control/control_server.h"
#include "host/image/image_stream.h"
#include "precopy/planner.h"
#include "precopy/tracker.h"

namespace ferry::host {

// Sends the memory of a process tree ahead of its move, while it runs (precopy/). What it does not
// send, because it cannot be tracked, CRIU dumps or rest() sends when all is frozen. The tree is
// slowed down no more when this is destroyed.
class CopyAhead {
 public:
  // How far it is: after each round.
  struct Progress {
    unsigned round = 0;
    std::uint64_t sent = 0, left = 0;  // bytes: in all; dirty now
    double dirty_rate = 0, rate = 0;   // bytes a second
    double blackout_ms = 0;            // estimate, if the program were stopped now
  };

  CopyAhead(ControlServer& control, pid_t root, const precopy::PlannerSettings& settings);
  ~CopyAhead();

  // Rounds, until the program had better be stopped. `go_on` throws when that is not wanted any
  // more. Throws Failure: the stop would take longer than wanted, or something failed.
  void run(ImageSender& sender, const std::function<void(const Progress&)>& tell,
           const std::function<void()>& go_on);
  // All is frozen and nothing else is about to change it: what was written since. Throws.
  void send_last(ImageSender& sender);
  // Of the pages that CRIU has left out of its image those that nobody has sent. Throws.
  void send_rest(ImageSender& sender, const std::string& images);

  std::uint64_t sent_ahead() const { return sent_ahead_; }  // bytes, of all rounds
  std::uint64_t sent_last() const { return sent_ - sent_ahead_; }
  unsigned rounds() const { return planner_.rounds(); }

 private:
  struct Process {
    std::int32_t inner_pid = 0;
    std::uint64_t started = 0;
    std::unique_ptr<precopy::Tracker> tracker;
    precopy::PageRanges sent;  // and not unmapped since
    precopy::PageRanges owed;  // that could not be read
  };

  void find_processes();
  std::uint64_t send_round(ImageSender& sender);
  std::uint64_t send(ImageSender& sender, Process& process, const precopy::PageRanges& pages,
                     bool all);

  ControlServer& control_;
  const pid_t root_;
  precopy::Planner planner_;
  std::map<pid_t, Process> processes_;
  std::vector<std::byte> buffer_;
  std::uint64_t sent_ = 0, sent_ahead_ = 0;
};

}  // namespace ferry::host
