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
#include "precopy/page_sink.h"
#include "precopy/page_store.h"
#include "precopy/planner.h"
#include "precopy/tracker.h"

namespace ferry::host {

// Sends the memory of a process tree ahead of its move, while the tree runs (precopy/). Memory that
// cannot be tracked is dumped by CRIU, or sent by send_rest() when all is frozen. From the
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

  CopyAhead(ControlServer& control, pid_t root, const precopy::PlannerSettings& settings);
  ~CopyAhead();

  // Sends rounds until the program had better be stopped. `go_on` throws when the copy is not
  // wanted any more. Throws Failure: the stop would take longer than wanted, or something failed.
  void run(precopy::PageSink& sink, const std::function<void(const Progress&)>& tell,
           const std::function<void()>& go_on);
  // When all is frozen and nothing else is about to change the memory: sends what was written since
  // the last round. Throws.
  void send_last(ImageSender& sender);
  // In place of send_last() and send_rest(), when `store` has what was sent: gives its pages, by process, that are as
  // the program has them now. CRIU leaves these out of its image, because they are named in `folder`, which is made
  // (criu/left_out.cc). Throws.
  std::map<std::int32_t, precopy::PageRanges> leave_out(const precopy::PageStore& store,
                                                        const std::string& folder);
  // Sends those of the pages that CRIU has left out of its image which nobody has sent. Throws.
  void send_rest(ImageSender& sender, const std::string& images);

  std::uint64_t sent_ahead() const { return sent_ahead_; }  // bytes, in all rounds
  std::uint64_t sent_last() const { return sent_ - sent_ahead_; }
  unsigned rounds() const { return planner_.rounds(); }

 private:
  struct Process {
    std::int32_t inner_pid = 0;
    std::uint64_t started = 0;
    std::unique_ptr<precopy::Tracker> tracker;
    precopy::PageRanges sent;  // pages that were sent, and not unmapped since
    precopy::PageRanges owed;  // pages that could not be read yet
  };

  void find_processes();
  std::uint64_t send_round(precopy::PageSink& sink);
  std::uint64_t send(precopy::PageSink& sink, Process& process, const precopy::PageRanges& pages,
                     bool all);

  ControlServer& control_;
  const pid_t root_;
  precopy::Planner planner_;
  std::map<pid_t, Process> processes_;
  std::vector<std::byte> buffer_;
  std::uint64_t sent_ = 0, sent_ahead_ = 0;
};

}  // namespace ferry::host
