#pragma once

#include <sys/types.h>

#include <atomic>
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
#include "precopy/pace.h"
#include "precopy/page_ranges.h"
#include "precopy/page_sink.h"
#include "precopy/planner.h"
#include "precopy/tracker.h"

namespace ferry::host {

// Sends the private memory of a process tree ahead of its move, while the tree runs (precopy/). Memory
// that cannot be tracked is sent by leave_out(), when all is frozen. CRIU dumps the rest. From the
// destruction of this object on the tree is slowed down no more.
class CopyAhead {
 public:
  // How far the copy is after a round.
  struct Progress {
    unsigned round = 0;
    std::uint64_t sent = 0, left = 0;  // bytes: in all; dirty now
    double dirty_rate = 0, rate = 0;   // bytes a second
    double blackout_ms = 0;            // estimate, if the program were stopped now
  };

  struct Settings {
    precopy::PlannerSettings planner;
    precopy::PaceSettings pace;
    std::atomic<unsigned>* sharers = nullptr;  // as Brake has them
  };

  CopyAhead(ControlServer& control, pid_t root, const Settings& settings);
  ~CopyAhead();

  // Within a round: so many bytes of `of` are sent, which is what all rounds will have sent when this one has ended.
  using Copied = std::function<void(std::uint64_t bytes, std::uint64_t of)>;

  // Sends rounds until the program had better be stopped. `tell`: after each round. `copied`: null: nobody asks.
  // `go_on` throws when the copy is not wanted any more. Throws Failure: the stop would take longer than wanted, or
  // something failed.
  void run(precopy::PageSink& sink, const std::function<void(const Progress&)>& tell,
           const Copied& copied, const std::function<void()>& go_on);
  // When all is frozen and nothing else is about to change the memory: gives the pages, by process, that the other side
  // has as the program has them once send_last() has returned. CRIU leaves these out of its image, because they are
  // named in `folder`, which is made (criu/left_out.cc). Sends those already that change while CRIU dumps. Throws.
  std::map<std::int32_t, precopy::PageRanges> leave_out(precopy::PageSink& sink,
                                                        const std::string& folder);
  // While CRIU dumps: sends what was written since the last round, and what was not sent at all. Throws.
  void send_last(precopy::PageSink& sink);

  std::uint64_t sent_ahead() const { return sent_ahead_; }  // bytes, in all rounds
  std::uint64_t sent_last() const { return sent_ - sent_ahead_; }
  unsigned rounds() const { return planner_.rounds(); }

 private:
  struct Process {
    explicit Process(pid_t pid_here);

    const pid_t pid;
    const std::int32_t inner_pid;
    const std::uint64_t started;
    std::unique_ptr<precopy::Tracker> tracker;  // null: it cannot be tracked
    precopy::PageRanges sent;                   // pages that were sent, and not unmapped since
    precopy::PageRanges owed;                   // pages that could not be read yet
    precopy::PageRanges last;                   // pages for send_last()
  };

  void find_processes();
  std::uint64_t left_to_copy() const;
  Process& process(pid_t pid);
  // Called before each frame, with the bytes of those before that it has not been told of.
  using BeforeFrame = std::function<void(std::uint64_t bytes)>;

  std::uint64_t send_round(precopy::PageSink& sink, const BeforeFrame& before_frame);
  std::uint64_t send(precopy::PageSink& sink, Process& process, const precopy::PageRanges& pages,
                     bool all, const BeforeFrame& before_frame = nullptr);

  ControlServer& control_;
  const pid_t root_;
  const precopy::PaceSettings pace_;
  std::atomic<unsigned>* const sharers_;
  precopy::Planner planner_;
  std::map<pid_t, Process> processes_;
  std::vector<std::byte> buffer_;
  std::uint64_t sent_ = 0, sent_ahead_ = 0;
  std::uint64_t untold_ = 0;  // bytes of frames: BeforeFrame
};

}  // namespace ferry::host
