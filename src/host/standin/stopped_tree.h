#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "agent/protocol.h"
#include "host/control/control_server.h"
#include "host/directory/directory.h"
#include "host/journal/journal.h"
#include "host/standin/residents.h"
#include "host/standin/stand_in_host.h"
#include "transport/transport.h"

// The Ferry processes of one process tree from their stop to their rollback, or until no peer needs
// their stand-ins any more.
namespace ferry::host {

class StoppedTree {
 public:
  struct Timing {
    std::chrono::steady_clock::time_point began;  // when the first QPs stopped, at the earliest
    std::uint64_t prepare_ns = 0,
                  rdma_ns = 0;  // longest of all processes; rdma: QPs stop, sockets are given away
    std::uint32_t qps = 0, unacked_psns = 0;
  };

  StoppedTree(ControlServer& control, StandInHost& stand_ins, std::uint64_t move_id);
  // Closes what is left; processes that were stopped and told nothing can then not come back.
  ~StoppedTree();

  // Gets what recover() needs, before any process lets go of its sockets, and may change the names of
  // QPs in it. May throw Failure.
  using Recorder = std::function<void(std::vector<HeldProcess>*)>;

  // Stops the processes in parallel; the stand-ins answer when it returns. What the processes say of their sockets must
  // be true (slots.h). Throws Failure: then all go on where they were.
  void stop(const std::vector<FerryProcess>& processes, const Residents& residents,
            std::chrono::milliseconds deadline, const Recorder& record = {});
  // In the place of stop(): takes up processes that a former ferryd had stopped, in the network namespace `netns`.
  // The stand-ins answer where the sockets can be opened again; reopen() tries the others once more
  // and gives one line about the first that still cannot be opened.
  void recover(const std::vector<HeldProcess>& processes, const std::string& netns);
  std::string reopen();
  // Marks the control blocks of the processes, all of which are frozen. Throws Failure, also after roll_back().
  void mark_frozen();
  // Decides for a rollback. Frozen processes ask when they are thawed; the others are told to ask.
  void roll_back();
  // Gives the answer to AWAKE: nothing while the move is undecided, when the tree has moved, or as long as a device of
  // the kernel that the process has left is not there.
  std::optional<ResumeSlots> wake(pid_t inner_pid);
  // Notes that a process came back after a rollback.
  void resumed(pid_t inner_pid);
  // True when all came back, or none was stopped.
  bool all_back() const;
  // After roll_back(), when the processes were ended: CRIU has restored this one from the image. It
  // gets what it had when it was stopped; new sockets, if it is in another network namespace. Throws
  // Failure.
  void restored(pid_t pid);
  // The restored processes are to be killed: they get nothing. False: one of them goes on already.
  bool disown();

  // True when `places` has a socket for each of sockets(), in the same order.
  bool fits(const std::vector<ProcessSlots>& places) const;
  // Throws Failure when a standard peer would not find its QP in `places`, which fit.
  void need_same_places(const std::vector<ProcessSlots>& places) const;
  // After the commit, `age` ago; `places` fit, `there` has their host and ferryd. Gives where the
  // RNICs have gone. A stand-in at the origin of its RNIC goes on for the life of the RNIC: from
  // now on it belongs to the caller.
  struct Departed {
    StandInId stand_in = 0;  // 0: it is not at the RNIC's origin
    Place place;             // the RNIC's new place
  };
  std::vector<Departed> commit(const std::vector<ProcessSlots>& places, const Place& there,
                               std::chrono::nanoseconds age = {});
  void peer_knows(std::uint32_t virtual_qpn);
  bool expired();
  // How long a peer may go on to ask the stand-ins: the longest of the QPs' Paused limits.
  std::chrono::nanoseconds paused_limit() const;

  std::vector<ProcessSlots> sockets() const;  // what the new place has to offer
  const Timing& timing() const { return timing_; }
  bool has_process(pid_t pid) const;
  // True when none of the processes that have not come back is there any more.
  bool all_gone() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kStopped, kRolledBack, kCommitted };
  struct Process {
    FerryProcess process;
    std::uint64_t started = 0;  // start_time()
    pid_t inner_pid = 0;
    std::uint64_t network = 0;                      // inode of the network namespace; 0: it is gone
    std::vector<ContextSlots> contexts;             // with descriptors only after a rollback
    std::vector<std::vector<StandInId>> stand_ins;  // per context and slot; 0: none
    bool frozen = false, back = false;
  };

  std::string why_not(pid_t pid, int error) const;
  std::vector<Process> ask_to_stop(const std::vector<FerryProcess>& processes,
                                   const Residents& residents, std::chrono::milliseconds deadline,
                                   std::string* failure);
  static void write_down(std::vector<Process>* stopped, const Recorder& record);
  std::string take_over_all(Clock::time_point began, std::chrono::milliseconds deadline);
  void note_limits(const Process& process);
  void take_over(Process& process);
  void hold_ports();
  void let_ports_go();
  std::string reopen_all();
  void give_up(Process& process);
  static bool lacks_a_device(const Process& process);
  bool take_back(Process& process);
  void leave_network(Process& process);
  static void tell_to_go(Process& process);
  static void write_command(Process& process, agent::ControlBlock::Command command);

  ControlServer& control_;
  StandInHost& stand_ins_;
  const std::uint64_t move_id_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kStopped;
  std::vector<Process> processes_;
  std::set<StandInId> handed_over_;  // to the callers of commit()
  std::vector<StandInId> holders_;   // stand-ins at UDP port 4791, beside those of other slots
  std::string netns_;                // given to recover()
  std::chrono::nanoseconds paused_limit_ = transport::MigrationSettings().paused_limit;
  Timing timing_;
};

}  // namespace ferry::host
