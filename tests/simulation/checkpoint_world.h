#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "events.h"
#include "host/checkpoint/course/lead_machine.h"
#include "host/checkpoint/course/part_machine.h"
#include "store/new_checkpoint.h"
#include "store/verdict.h"

// Whole checkpoints and restarts of programs on several hosts, simulated: with crashes of the ferryd that leads and of
// those that are led, cuts of the links between them, a store that does not answer or whose answers are lost, steps
// that fail, and users who give up, at any time. Everything follows from the seed.
//
// Real are both sides of the course (src/host/checkpoint/course), and the store with its decisions
// (src/store/verdict.h, new_checkpoint.h) in a directory. Played are the programs, the conversations between ferryds,
// and the time.
namespace ferry::simulation {

// Guards that a run may do without, to see that the simulation finds it out.
enum class Lacking : std::uint8_t {
  kNothing,
  kWaitingForAll,   // the next step is told when one host has taken the last one
  kAskingStore,     // a host that loses the leader undoes what it has done
  kDecidingInStore  // the leader decides whatever a host has decided there
};

struct CheckpointOptions {
  std::uint64_t seed = 1;
  Lacking lacking = Lacking::kNothing;
  std::string directory;  // an empty one, for the store
  bool trace = false;     // every step on stdout
};

enum class Trouble : std::uint8_t {
  kLeaderCrash,
  kPartCrash,
  kShortCut,  // of the link between the leader and a host
  kLongCut,   // so that both give each other up
  kStoreDown,
  kAnswerLost,  // of the store, to the leader's decision
  kStepFails,
  kUnwanted,
  kCount,
};
const char* name_of(Trouble trouble);

struct CheckpointTotals {
  std::uint64_t schedules = 0, checkpoints = 0, stops = 0, restarts = 0, decided = 0, given_up = 0,
                asked_store = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Trouble::kCount)> troubles{};
  CheckpointTotals& operator+=(const CheckpointTotals& other);
};
std::string to_json(const CheckpointTotals& totals);

class CheckpointWorld {
 public:
  explicit CheckpointWorld(const CheckpointOptions& options);
  // What went wrong; empty: nothing.
  std::string run();
  const CheckpointTotals& totals() const { return totals_; }
  std::string describe() const;

 private:
  enum class Kind : std::uint8_t { kCheckpoint, kStop, kRestart };
  enum class Programs : std::uint8_t { kAbsent, kRunning, kFrozen, kDumped, kRestored, kEnded };
  struct Part {
    explicit Part(const host::Course& course) : machine(course) {}

    host::PartMachine machine;
    Programs programs = Programs::kRunning;
    bool is_alive = true;    // its ferryd
    bool hears = true;       // by what its ferryd knows of the conversation with the leader
    bool is_heard = true;    // by what the leader knows of that
    bool is_busy = false;    // with a step
    bool is_undone = false;  // it has given up what it had done
    bool is_named = false;   // it has failed after the decision: the leader's report says so
    std::deque<host::CourseStep> steps;  // that wait for the one that is under way
    Time cut_until{0};                   // the link to it
    std::optional<Time> frozen_at;       // since when its programs stand still
    std::optional<Time> dumps_at, dumped_at, goes_on_at;
    std::optional<store::Completion> completion;
    std::optional<store::Verdict> verdict;
  };

  const host::Course& course() const;
  void trouble();
  void begin(Trouble trouble);
  void fail(const std::string& what);
  void trace(const std::string& what) const;
  Time arrival(const Part& part);

  // The leader.
  void lead();
  void tell(std::size_t i);
  void decide();
  void decide_restart(bool is_first);
  void decided(bool goes_on);
  void lose(std::size_t i);  // the leader does not hear this host any more
  void crash_leader();
  void end_conversation(std::size_t i, Time delay);

  // A host.
  void take(std::size_t i, host::CourseStep step);
  void took(std::size_t i, host::CourseStep step, bool fails);
  void answer(std::size_t i, bool is_taken);
  void lose_leader(std::size_t i);
  bool is_leader(std::size_t i) const { return i == 0 && has_own_; }
  void settle(std::size_t i);
  void ask_store(std::size_t i);
  void undo(std::size_t i);
  void crash(std::size_t i);

  void check_end();
  void check_cut();
  bool is_complete() const;
  bool is_store_down() const { return events_.now() < store_down_until_; }

  const CheckpointOptions options_;
  Events events_;
  std::string failure_;
  CheckpointTotals totals_;
  Kind kind_ = Kind::kCheckpoint;
  std::deque<Part> parts_;
  bool has_own_ = false;  // the leader is the ferryd of the first host
  std::optional<host::LeadMachine> leader_;
  bool leader_is_alive_ = true, is_over_ = false, answer_is_lost_ = false, step_fails_ = false;
  bool is_deciding_ = false, is_unwanted_ = false;  // nothing ends the leader's talk with the store
  Time store_down_until_{0};
  std::unique_ptr<store::NewCheckpoint> fresh_;
  std::optional<store::Verdict> verdict_;
};

// What telling all steps between the stop and the end of the standstill costs on a network.
struct NetworkPart {
  std::size_t rounds = 0, messages = 0;
  Time time{0};
};
// `way`: what a message takes from one host to another; `work`: what each message and its answer take of the leader's
// processor.
NetworkPart network_part(std::size_t hosts, Time way, Time work);

}  // namespace ferry::simulation
