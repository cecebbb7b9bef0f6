#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "host/journal/decision.h"

namespace ferry::host {

// The source's side of a move as a state machine, without I/O, clock or locks. It has all programs
// of one `ferry move`, which move all or none. Its owner carries out the actions that next() and
// step() give, and tells it how they ended. ferryd (move_group.h, former_move.h) and the simulation
// of whole moves run the same code.
//
// Each program has a state of its own; kTransitions has every change of it. Three times the
// programs wait for each other: none is prepared before all are checked, and so on; and for those of
// other hosts that move with them. One SourceDecision decides for all of them (decision.h).
//
// A ferryd that starts again goes on with recovered(): a move whose program the destination may
// hold.
class MoveMachine {
 public:
  using Time = std::chrono::nanoseconds;

  enum class State : std::uint8_t {
    kChecking,
    kChecked,
    kPreparing,
    kPrepared,
    kCopying,
    kCopied,
    kStopping,      // CRIU is about to dump it
    kStopped,       // RDMA is taken from it, and stand-ins answer
    kFrozen,        // CRIU writes its image
    kTransferring,  // its image is on its way
    kRestoring,
    kHeldThere,  // frozen here, and frozen and silent there
    kLeaving,    // it goes on there
    kGone,       // stand-ins tell peers the way
    kOver,       // nobody needs the stand-ins any more
    kReturning,  // it goes on here
    kBack,
  };

  enum class Event : std::uint8_t {
    // Told by the owner.
    kChecked,
    kPrepared,
    kCopied,
    kStopped,
    kFrozen,
    kDumped,
    kTransferred,
    kRestored,
    kLeft,
    kUnneeded,
    kReturned,
    // The group's.
    kAllChecked,
    kAllPrepared,
    kAllCopied,
    kCommitted,
    kAborted,
  };

  // Each is given once.
  enum class Action : std::uint8_t {
    kNone,
    kCheck,      // here and there, changing nothing → kChecked
    kPrepare,    // the destination makes room → kPrepared
    kCopyAhead,  // what can be copied while the program runs → kCopied
    kDump,       // CRIU dumps; meanwhile it is stopped and frozen → kStopped, kFrozen, kDumped
    kTransfer,   // → kTransferred
    kRestore,    // → kRestored
    kLeave,      // peers are told where the program is now → kLeft
    kFollow,     // stand-ins answer as long as peers may ask here → kUnneeded
    kReturn,     // the program gets its RDMA back, and the destination hears of it → kReturned
  };

  struct Transition {
    State from;
    Event event;
    State to;
    Action action;
  };
  static constexpr Transition kTransitions[] = {
      {State::kChecking, Event::kChecked, State::kChecked, Action::kNone},
      {State::kChecked, Event::kAllChecked, State::kPreparing, Action::kPrepare},
      {State::kPreparing, Event::kPrepared, State::kPrepared, Action::kNone},
      {State::kPrepared, Event::kAllPrepared, State::kCopying, Action::kCopyAhead},
      {State::kCopying, Event::kCopied, State::kCopied, Action::kNone},
      {State::kCopied, Event::kAllCopied, State::kStopping, Action::kDump},
      {State::kStopping, Event::kStopped, State::kStopped, Action::kNone},
      {State::kStopped, Event::kFrozen, State::kFrozen, Action::kNone},
      {State::kFrozen, Event::kDumped, State::kTransferring, Action::kTransfer},
      {State::kTransferring, Event::kTransferred, State::kRestoring, Action::kRestore},
      {State::kRestoring, Event::kRestored, State::kHeldThere, Action::kNone},

      {State::kHeldThere, Event::kCommitted, State::kLeaving, Action::kLeave},
      {State::kLeaving, Event::kLeft, State::kGone, Action::kFollow},
      {State::kGone, Event::kUnneeded, State::kOver, Action::kNone},

      {State::kChecking, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kChecked, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kPreparing, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kPrepared, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kCopying, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kCopied, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kStopping, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kStopped, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kFrozen, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kTransferring, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kRestoring, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kHeldThere, Event::kAborted, State::kReturning, Action::kReturn},
      {State::kReturning, Event::kReturned, State::kBack, Action::kNone},
  };

  // What the owner does for all programs: what the SourceDecision asks for, and at last the record
  // of the outcome, where there is a record of a promise.
  enum class Step : std::uint8_t {
    kNone,
    kRecordPromise,  // → written()
    kAskCommit,      // the destination is asked to commit → answered()
    kAskAbort,       // → answered()
    kRecordOutcome,  // kConfirmed or kAborted
  };

  // `standstill`: how long a program may be under CRIU before the promise. `has_others`: programs of
  // other hosts move with these.
  MoveMachine(std::size_t programs, Time standstill, bool has_others = false);
  // For a ferryd that knows a move from the record only.
  static MoveMachine recovered(std::optional<Decision> record);

  // The next action for the program with this index.
  Action next(std::size_t program, Time now);
  // As next(), but does not take the action: next() still gives it.
  Action due(std::size_t program) const { return programs_.at(program).due; }
  // False: the event does not happen in this state, and has changed nothing.
  bool happened(std::size_t program, Event event);
  State state(std::size_t program) const { return programs_.at(program).state; }
  // kChecked, kPrepared or kCopied: all programs are so far, and wait for those of other hosts. None: they do not.
  std::optional<State> waits_for_others() const;
  // Those are as far.
  void others_came();

  // The step that is due now. There is no other before this one has ended: written(), answered().
  Step step(Time now);
  void written(Written result);
  void answered(Answer answer, Time now);
  // Something failed, or somebody gave up. False: too late, it is promised.
  bool failed();
  // An operator says that the destination will not go on with the programs.
  void operator_aborts();

  // When time_passed() has something to do, or step().
  std::optional<Time> deadline() const;
  // True: a program stood still for too long, and the move is given up.
  bool time_passed(Time now);

  const SourceDecision& decision() const { return decision_; }

 private:
  struct Program {
    State state = State::kChecking;
    Action due = Action::kCheck;
    std::optional<Time> still_until;  // the end of its standstill
  };

  explicit MoveMachine(SourceDecision decision);
  bool apply(Program& program, Event event);
  bool are_all(State state) const;
  void meet(State state, Event event);
  void tell_all(Event event);
  void conclude();

  std::vector<Program> programs_;
  Time standstill_{};
  bool has_others_ = false;
  SourceDecision decision_;
  bool is_stepping_ = false;    // a step has been given, and has not ended
  bool is_concluded_ = false;   // the programs have been told the decision
  bool owes_outcome_ = false;   // there is, or may be, a record of a promise
  std::optional<Time> ask_at_;  // the destination is not asked before
};

}  // namespace ferry::host
