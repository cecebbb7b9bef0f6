#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/control/control_server.h"
#include "host/journal/journal.h"
#include "host/peers/messages.h"
#include "host/standin/slots.h"
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

// What an image says of its checkpoint, in the file agent::kCheckpointFile.
struct CheckpointNote {
  std::uint64_t id = 0;
  std::string program;
  std::string host, ferryd;  // the keeper's name; address:port, or empty: it serves its host only

  bool operator==(const CheckpointNote&) const = default;
};
std::string to_text(const CheckpointNote& note);
// Nothing: `text` is no note.
std::optional<CheckpointNote> parse_note(const std::string& text);

class Custody {
 public:
  // Checkpoints that were restored are moves from then on: `departures` and `arrivals` get them.
  Custody(const ThisHost& host, ControlServer& control, StandInHost& stand_ins,
          DecisionLog& decisions, const Residents& residents, Whereabouts& whereabouts,
          Departures& departures, Arrivals& arrivals);

  // --- a move of Ferry's own by another's CRIU: the next dump of that tree is its checkpoint.
  struct Guide {
    std::uint64_t id = 0;
    pid_t root = 0;
    std::function<void(const StoppedTree::Timing&)> stopped;
    std::function<void()> taken;  // another host has taken it; that is on record
  };
  void guide(Guide guide);
  void unguide(std::uint64_t id);
  // From now on no other host gets the checkpoint.
  enum class Fate : std::uint8_t {
    kHere,     // nothing was stopped, or it goes on here
    kKept,     // nobody else can have restored it
    kClaimed,  // another host may have restored it, and has to say how that ended
    kTaken,    // another host has restored it
  };
  Fate call_back(std::uint64_t id);
  // After kClaimed: the other host has nothing of it, or an operator says so.
  void release(std::uint64_t id);
  // On that other host: the restored processes get no sockets any more.
  void give_up(std::uint64_t id);

  // --- the dump. A tree without Ferry processes gets no note. Throw Failure.
  std::string stop(pid_t root);
  bool frozen(pid_t pid);  // false: it is of no checkpoint
  bool dump_failed(pid_t pid);

  // --- the keeper. `by`: a host's name. Throw Failure.
  v1::ClaimReply claimed(std::uint64_t id, const std::string& by);
  void unclaimed(std::uint64_t id, const std::string& by);
  void taken(const v1::TakeRequest& request, const std::string& by);
  // Keeps a checkpoint that a former ferryd kept. False: it is none, or its program is still here
  // and goes on. While podman may still be at the dump nobody knows whether it does: it is kept.
  bool recover(std::uint64_t id, const Journal::Entry& entry);

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
    std::unique_ptr<LockException> exception;
    std::function<void()> gone;  // called when another host has taken it
    std::mutex claiming;         // guards what follows
    std::string claimed_by;
    bool called_back = false;
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
  void need_not_called_back(const Kept& kept, const std::string& by) const;
  static bool is_restored(Claim& claim, pid_t pid);
  std::optional<agent::Resume> wake(Claim& claim, pid_t pid);
  void bind(Claim& claim, pid_t pid);

  const ThisHost& host_;
  ControlServer& control_;
  StandInHost& stand_ins_;
  DecisionLog& decisions_;
  const Residents& residents_;
  Whereabouts& whereabouts_;
  Departures& departures_;
  Arrivals& arrivals_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Kept>> kept_;
  std::map<std::uint64_t, std::shared_ptr<Claim>> claims_;
  std::map<std::uint64_t, Guide> guides_;
};

}  // namespace ferry::host
