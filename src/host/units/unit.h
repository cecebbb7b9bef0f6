#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/control/control_server.h"
#include "host/image/copy_ahead.h"
#include "host/image/copy_limits.h"
#include "host/image/rootfs.h"
#include "host/timeline/timeline.h"
#include "host/units/criu_runner.h"
#include "host/units/stdio_file.h"

namespace ferry::host {

// What a user may want to move beside the processes, if the unit can do it.
struct Extras {
  bool rootfs = false;  // the root filesystem is copied
  std::string stdio;    // a file at the destination: what the program prints is appended to it
};

// Why containers have no Extras that are not of runc; after the container's name.
inline constexpr char kOnlyRunc[] =
    "is no container of runc's, for which --copy-rootfs and --stdio are";

// Says that the program is not on `from` any more.
std::string has_moved(const std::string& program, const std::string& from, const std::string& to);
// Says that it is about to leave, or to come.
std::string is_moving(const std::string& program);

// One thing that moves: a process tree, and all that depends on who runs it (nobody, the lab,
// runc, podman). The source of a move has the unit that runs there, the destination the one that arrives.
// Most methods have nothing to do for plain processes.
class Unit {
 public:
  using Clock = std::chrono::steady_clock;
  using TellAhead = std::function<void(const CopyAhead::Progress&)>;
  using NeedWanted = std::function<void()>;  // throws Failure when the move is given up

  Unit(std::string name, pid_t root) : name_(std::move(name)), root_(root) {}
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;

  const std::string& name() const { return name_; }
  // The first process, on the source; 0: it does not run.
  pid_t root() const { return root_; }

  // --- on both sides

  // UnitKind::kind(); and what that kind has to know on the other host, in a form of its own.
  virtual std::string kind() const = 0;
  virtual std::string details() const { return {}; }
  // Path of its network namespace; empty: it is on the host's network.
  virtual std::string netns() const { return {}; }
  // The name of its network for switch_network(), also after a restart of ferryd; empty: none.
  virtual std::string instance() const { return {}; }
  // True when the address of its RNIC belongs to it, not to the host.
  virtual bool rdma_moves() const { return false; }
  // True when its runtime makes and restores checkpoints of it by itself, as podman does. Then
  //   - dump() gives the image away as it is written, and returns when the decision is carried out;
  //     its processes have ended before that, and come back by come_back();
  //   - the image names the move (host/image/checkpoint_note.h), and the runtime's CRIU asks before
  //     it restores that, and before a process runs: CLAIM and RESTORED (agent/protocol.h), in place
  //     of the action post-restore;
  //   - the runtime makes its network together with its processes, so that its sockets are bound
  //     when it is held.
  virtual bool is_checkpointed() const { return false; }
  // False: what runs it can move it by itself, as QEMU moves a virtual machine. Then
  //   - it copies its memory by copy_ahead(); there is no image, and its processes may get other ids;
  //   - dump() and restore() call the functions of CriuRunner::Dump and Restore that are for it;
  //   - programs inside it may use RDMA, of which this host knows nothing: stop_inside().
  virtual bool needs_criu() const { return true; }
  // A regular file outside of it to which it prints, and which moves along; empty: none.
  virtual std::string log() const { return {}; }
  // The root filesystem, when that is copied with the move.
  virtual std::optional<Rootfs> copied_rootfs() const { return std::nullopt; }
  // `command`: hold, activate, deactivate or release, as for the network hook. Throws Failure.
  virtual void switch_network([[maybe_unused]] const std::string& command) const {}

  // Write its state and its root for other tools on this host, in two steps: only the first one can
  // fail on a full disk. `to`: the host to which it has moved. Throw Failure.
  enum class State { kRestoring, kRunning, kMoved };
  virtual void stage([[maybe_unused]] State state, [[maybe_unused]] pid_t root,
                     [[maybe_unused]] const std::string& to) const {}
  virtual void publish() const {}
  // Does both steps if the state on record is `from`: a ferryd was killed before the second one.
  virtual void correct([[maybe_unused]] State from, [[maybe_unused]] State state,
                       [[maybe_unused]] pid_t root, [[maybe_unused]] const std::string& to) const {}

  // --- on the source

  // Throws Failure when this user may not move it.
  virtual void need_mover(uid_t user) const;
  // Why it does not move when no process in it uses an RDMA device of Ferry's. `what`: it, in words.
  virtual std::string without_rdma(const std::string& what) const;
  // Throws Failure when it cannot do what the user wants.
  virtual void want(const Extras& extras) = 0;
  // Throws Failure, with one line that says why, when the dump or the restore would fail.
  virtual void need_movable() const = 0;
  // Paths that the destination must have.
  virtual std::set<std::string> needed_files() const = 0;
  // The file that takes the place of those standard streams that lead out of it, at the destination
  // (`user` has named the file); nothing: the move leaves its streams alone.
  virtual std::optional<StdioFile> redirects_to([[maybe_unused]] uid_t user) const {
    return std::nullopt;
  }
  // Called before it stops: notes what a later ferryd has to know. Throws Failure.
  virtual void leave() const {}
  // These four are for a unit without CRIU. The first is called when the destination is prepared, with what
  // meeting_point() gives there; throws Failure.
  virtual void meet([[maybe_unused]] const std::string& point) const {}
  // Copies its memory while it runs, until it had better be stopped. Throws Failure; then it runs as before.
  struct Ahead {
    unsigned rounds = 0;
    std::uint64_t bytes = 0;
  };
  virtual Ahead copy_ahead([[maybe_unused]] const CopyLimits& limits,
                           [[maybe_unused]] const TellAhead& tell,
                           [[maybe_unused]] const NeedWanted& need_wanted) const {
    return {};
  }
  // Called at the stop, when the journal knows of it: has the programs inside it stop RDMA. Throws Failure.
  virtual void stop_inside([[maybe_unused]] std::chrono::milliseconds limit,
                           [[maybe_unused]] const NeedWanted& need_wanted) const {}
  // Since when nothing inside it runs; nothing: it runs, or was not moved so far.
  virtual std::optional<Clock::time_point> paused() const { return std::nullopt; }
  // As CriuRunner::dump. While it runs it calls ferryd, as CRIU's plugin and action script do:
  // PAUSE_TREE before it freezes the tree; FROZEN; the action network-lock; and, when all images
  // are written, the action post-dump. An answer that is not 0 ends the dump, and the tree goes on
  // (agent/protocol.h).
  virtual std::string dump(CriuRunner& criu, CriuRunner::Dump dump,
                           std::atomic<pid_t>* pid) const = 0;
  // Called after the commit, or when it ended with its checkpoint, when its processes have ended:
  // takes away what must not stay without them.
  virtual void left() const {}
  // Called after the abort, when the destination has been told, if is_checkpointed(): restores it
  // from its checkpoint, unless it runs. Gives an empty string, or what failed; `killed`: because
  // the runtime took longer than `limit`, and was killed. end_restore() clears up after that.
  virtual std::string come_back([[maybe_unused]] std::chrono::milliseconds limit,
                                [[maybe_unused]] bool* killed) const {
    return {};
  }
  virtual void end_restore() const {}

  // --- on the destination

  // As CriuRunner::restore. When all is restored and frozen it calls ferryd: the action post-restore,
  // whose answer 0 lets the tree go on.
  virtual std::string restore(CriuRunner& criu, CriuRunner::Restore restore,
                              std::atomic<pid_t>* pid) const = 0;
  // For meet(), at the source.
  virtual std::string meeting_point() const { return {}; }
  // The programs inside a unit without CRIU that have stopped RDMA, when restore() has ended.
  struct InnerProgram {
    pid_t pid = 0;  // inside
    std::string name;
    double stood_still_ms = 0;  // by the clock inside; 0: it has ended
  };
  virtual std::vector<InnerProgram> inner_programs() const { return {}; }
  // What a unit without CRIU has done in a move, here.
  virtual std::vector<Timeline::Span> spans() const { return {}; }
  // How long its runtime lets it be held for the decision.
  virtual std::chrono::milliseconds patience() const { return std::chrono::hours(24 * 365); }
  // Called when it goes on, after the commit, and again by a later ferryd: gives it what it need not
  // share with ferryd. `root`: its first process. Throws Failure.
  virtual void settle([[maybe_unused]] pid_t root) const {}
  // Called when its program has ended. False, and nothing was done: it has moved on. Throws
  // Failure.
  virtual bool end([[maybe_unused]] int status) const { return true; }
  // Takes away what was made for its failed arrival, but not the network.
  virtual void forget() const {}

 private:
  const std::string name_;
  const pid_t root_;
};

// By what a unit is known.
struct UnitName {
  std::string kind;
  std::string name;  // for people
  std::string id;    // for whoever runs it
};

// Whoever runs the units of one kind on this host.
class UnitKind {
 public:
  virtual ~UnitKind() = default;

  // The kind's name in requests.
  virtual std::string kind() const = 0;
  // As Unit::needs_criu().
  virtual bool needs_criu() const { return true; }

  // True when it has a unit that users mean by this name alone, without the kind; that need not
  // run.
  virtual bool has([[maybe_unused]] const std::string& name) { return false; }
  // The unit of this name. Throws Failure when there is none, or when it cannot move as it is.
  // `host`: this host's name.
  virtual std::shared_ptr<Unit> named(const std::string& host, const std::string& name) = 0;
  // The unit that a process belongs to; null: none of this kind. Throws as named().
  virtual std::shared_ptr<Unit> of_process(const std::string& host, pid_t pid) = 0;
  // The name of the unit that a process belongs to; nothing: none of this kind, or none with a
  // name.
  virtual std::optional<UnitName> name_of([[maybe_unused]] pid_t pid) { return std::nullopt; }

  // On the destination, whose name is `host`: throws Failure when this unit cannot come. Changes nothing.
  virtual void check_arrival([[maybe_unused]] const std::string& host,
                             [[maybe_unused]] const std::string& name,
                             [[maybe_unused]] const std::string& details) {}
  // True when a unit may arrive under this name.
  virtual bool name_is_free([[maybe_unused]] const std::string& name) { return true; }
  // Makes the network of an arriving unit, silent, and what else it needs. `source`: the name of the host that it
  // comes from, by that one's certificate. Throws Failure, and leaves nothing.
  virtual std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                                       const std::string& source) = 0;

  // True for the instances (Unit::instance()) of this kind.
  virtual bool has_made([[maybe_unused]] const std::string& instance) const { return false; }
  // A unit that a former ferryd had to do with; null: there is no such instance any more.
  virtual std::shared_ptr<Unit> known([[maybe_unused]] const std::string& name,
                                      [[maybe_unused]] const std::string& instance) {
    return nullptr;
  }
  // As Unit::switch_network(), also when there is no unit any more.
  virtual void switch_network([[maybe_unused]] const std::string& command,
                              [[maybe_unused]] const std::string& instance) {}
  // Takes away the units that were arriving when a former ferryd ended.
  virtual void clear_up_arrivals() {}
  // Switches on the network of the unit with this root, which a former ferryd had set to hold. Throws
  // Failure.
  virtual void join_network_again([[maybe_unused]] pid_t root) {}
};

// Throws Failure, one line, unless `user` is root or owns every process of the tree.
void need_owner(uid_t user, const std::string& name, pid_t root);
bool is_owner(uid_t user, pid_t root);

// The registered processes of the tree below `root`.
std::vector<FerryProcess> ferry_processes(const ControlServer& control, pid_t root);
// The RNICs of these processes, as they describe them. Throws Failure when a process is halted, or
// does not answer.
std::vector<agent::ContextStatus> contexts_of(ControlServer& control,
                                              const std::vector<FerryProcess>& processes);

}  // namespace ferry::host
