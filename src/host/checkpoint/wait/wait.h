#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/wait/restarted.h"
#include "host/peers/messages.h"
#include "store/checkpoint.h"

namespace ferry::host {

class Peer;
struct ThisHost;

// What is to be waited for when the restart of the checkpoint has given this report.
v1::RestartedPrograms waited_programs(const ThisHost& host, const store::Checkpoint& checkpoint,
                                      const v1::RestartReport& report);

// Waits for the programs of a restart, on this host and on others, and ends them if it is told to. A host that does not
// answer is asked again: its programs run until it says something else.
class Wait {
 public:
  using Clock = std::chrono::steady_clock;
  using Tell = std::function<void(const v1::WaitEvent& event)>;

  // Throws Failure.
  Wait(const ThisHost& host, const Restarted& here, const v1::RestartedPrograms& programs);
  ~Wait();

  // Asks all hosts that are to be asked now, and tells of each program that has ended, once.
  void look(const Tell& tell);
  bool is_over() const;

  // The programs are to end: by SIGTERM, and by SIGKILL when that has not ended them soon.
  void end();
  // By SIGKILL.
  void end_at_once() { is_to_kill_ = true; }

 private:
  class Host;

  const Restarted& here_;
  std::map<std::string, std::unique_ptr<Host>> hosts_;  // by their records; empty: this one
  bool is_to_end_ = false, is_to_kill_ = false;
  Clock::time_point kill_at_;
};

}  // namespace ferry::host
