#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/control/control_server.h"
#include "host/history/accounts.h"
#include "host/image/checkpoint_note.h"
#include "host/journal/journal.h"
#include "host/peers/messages.h"
#include "host/standin/network_rules.h"
#include "host/standin/stopped_tree.h"

// Checkpoints that somebody else's CRIU makes and restores: a container runtime's, a user's. Nobody
// leads such a move from end to end, so which copy of the program goes on is decided when one does:
//
//   the ferryd where it was made, its keeper        the ferryd where it is restored
//     stopped, frozen: stand-ins answer
//     kept ── a process of the tree runs on ──► it goes on here; the image is of no more use
//       │  ◄─── Claim ────────────────────────────── CRIU is about to restore it
//     claimed ── Unclaim (the restore failed) ──► kept
//       │  ◄─── Take ─────────────────────────────── the restored processes are awake, with
//       ▼                                            sockets that are bound
//     gone: as after the commit of a move            they resume
//
// Keeper and restorer may be the same. A claim needs that nothing of the tree is alive, and there
// is one at a time: so of all copies of an image, restored again and again, one has RDMA.
namespace ferry::host {

class Arrival;
class Arrivals;
class DecisionLog;
class Departures;
class Residents;
class StandInHost;
class Whereabouts;
struct ThisHost;

class Custody {
 public:
  // Checkpoints that were restored are moves from then on: `departures` and `arrivals` get them.
  Custody(const ThisHost& host, ControlServer& control, StandInHost& stand_ins,
          DecisionLog& decisions, const Residents& residents, Whereabouts& whereabouts,
          Departures& departures, Arrivals& arrivals, Accounts& accounts);

  // --- the dump. A tree without Ferry processes gets no note. Throw Failure.
  std::string stop(pid_t root);
  bool frozen(pid_t pid);  // false: it is of no checkpoint
  bool dump_failed(pid_t pid);

  // --- the keeper. `by`: a host's name. Throw Failure.
  v1::ClaimReply claimed(std::uint64_t id, const std::string& by);
  void unclaimed(std::uint64_t id, const std::string& by);
  void taken(const v1::TakeRequest& request, const std::string& by);
  // Keeps a checkpoint that a former ferryd kept. False: it is none, or its program is still here
  // and goes on.
  bool recover(std::uint64_t id, const Journal::Entry& entry);
  bool is_kept(std::uint64_t id) { return kept(id) != nullptr; }

  // --- the restore. Throw Failure.
  void claim(pid_t criu, const std::string& note);
  void restore_failed(pid_t criu, const std::string& note);
  // CRIU says that `pid` is one of the processes: nobody else gets what they had.
  void restored(pid_t pid, const std::string& note);
  bool is_restoring(std::uint64_t id);

  // --- the processes. Nothing, or false: the process is of no checkpoint.
  std::optional<WakeUp> awake(pid_t pid, std::uint64_t id);
  bool resumed(pid_t pid, std::uint64_t id);
  void registered(pid_t pid);

  // Forgets checkpoints that nobody has restored for long.
  void keep_house();

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    std::uint64_t id = 0;
    Held held;
    std::uint64_t netns = 0;  // inode
    UniqueFd network;         // keeps the network alive for the stand-ins
    std::unique_ptr<StoppedTree> tree;
    std::unique_ptr<NetworkRules> exception;
    std::mutex claiming;  // guards claimed_by
    std::string claimed_by;
    const Clock::time_point since = Clock::now();
  };
  struct Claim {
    CheckpointNote note;
    UniqueFd criu;  // pidfd
    Clock::time_point since = Clock::now();
    std::vector<ProcessSlots> old;
    std::mutex waking;                         // guards what follows
    std::map<pid_t, std::uint64_t> processes;  // which CRIU has restored, and when they started
    Held held;                                 // once a process has come: with bound sockets
    std::shared_ptr<Arrival> arrival;
  };

  bool is_here(const CheckpointNote& note) const;
  std::shared_ptr<Kept> kept(std::uint64_t id);
  std::shared_ptr<Kept> kept_of(pid_t pid);
  std::shared_ptr<Claim> claim_of(std::uint64_t id);
  void forget(const Kept& kept);
  static bool is_restored(Claim& claim, pid_t pid);
  void tell_arrival(const Claim& claim);
  std::optional<ResumeSlots> wake(Claim& claim, pid_t pid);
  void bind(Claim& claim, pid_t pid);

  const ThisHost& host_;
  ControlServer& control_;
  StandInHost& stand_ins_;
  DecisionLog& decisions_;
  const Residents& residents_;
  Whereabouts& whereabouts_;
  Departures& departures_;
  Arrivals& arrivals_;
  Accounts& accounts_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Kept>> kept_;
  std::map<std::uint64_t, std::shared_ptr<Claim>> claims_;
};

}  // namespace ferry::host
