#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "host/journal/decision.h"

namespace ferry::host {

// The destination's side of a move as a state machine, without I/O, clock or locks. It has all
// programs of one `ferry move`, which arrive all or none. It is the other half of MoveMachine
// (move_machine.h), and is driven in the same way: its owner carries out the actions that next()
// and step() give, and tells it how they ended. ferryd (arrival_group.h) and the simulation of
// whole moves run the same code.
//
// Each program has a state of its own; kTransitions has every change of it. The source steers until
// all programs are held. From then on only the source's decision leads on (decision.h): a
// destination that hears nothing of it asks the source. Where programs come from several hosts, all
// of that holds for each of these.
class ArrivalMachine {
 public:
  using Time = std::chrono::nanoseconds;

  enum class State : std::uint8_t {
    kExpected,    // the group is known, but the source has not asked for room for this program
    kPrepared,    // its image comes
    kRestoring,   // CRIU restores it
    kHeld,        // restored, frozen and silent
    kConnecting,  // it will go on here; its network and the directory learn that
    kConnected,
    kHere,  // it goes on, because all programs of its group are connected
    kOver,  // it has ended, or has moved on
    kUndoing,
    kUndone,  // nothing of it is here
  };

  enum class Event : std::uint8_t {
    // Told by the owner.
    kPrepared,
    kTransferred,
    kHeld,
    kConnected,
    kEnded,
    kUndone,
    // The group's.
    kCommitted,
    kAllConnected,
    kAborted,
  };

  // Each is given once.
  enum class Action : std::uint8_t {
    kNone,
    kRestore,  // CRIU restores it from its image → kHeld
    kConnect,  // its network is opened, and the directory learns where it is → kConnected
    kUndo,     // it is killed, and what was made for it removed → kUndone
  };

  struct Transition {
    State from;
    Event event;
    State to;
    Action action;
  };
  static constexpr Transition kTransitions[] = {
      {State::kExpected, Event::kPrepared, State::kPrepared, Action::kNone},
      {State::kPrepared, Event::kTransferred, State::kRestoring, Action::kRestore},
      {State::kRestoring, Event::kHeld, State::kHeld, Action::kNone},

      {State::kHeld, Event::kCommitted, State::kConnecting, Action::kConnect},
      {State::kConnecting, Event::kConnected, State::kConnected, Action::kNone},
      {State::kConnected, Event::kAllConnected, State::kHere, Action::kNone},
      {State::kHere, Event::kEnded, State::kOver, Action::kNone},

      {State::kExpected, Event::kAborted, State::kUndone, Action::kNone},
      {State::kPrepared, Event::kAborted, State::kUndoing, Action::kUndo},
      {State::kRestoring, Event::kAborted, State::kUndoing, Action::kUndo},
      {State::kHeld, Event::kAborted, State::kUndoing, Action::kUndo},
      {State::kUndoing, Event::kUndone, State::kUndone, Action::kNone},
  };

  // What the owner records for all programs, because the DestinationDecision asks for it.
  enum class Step : std::uint8_t {
    kNone,
    kRecordCommit,  // → written()
    kRecordAbort,   // → written()
  };

  // `patience`: how long a source may leave questions without an answer before what it has begun is
  // given up. Once all programs are held it is not given up any more: it may have promised. None:
  // there is no source to ask, and the owner decides alone, by promised() and failed(). `sources`:
  // hosts from which the programs come.
  ArrivalMachine(std::size_t programs, std::optional<Time> patience, Time now,
                 std::size_t sources = 1);
  // For a ferryd that knows an arrival from the record only. Committed: one program, which CRIU has
  // restored. Otherwise: it is to be undone.
  static ArrivalMachine recovered(std::optional<Decision> record);

  std::size_t programs() const { return programs_.size(); }
  bool has_source() const { return patience_.has_value(); }
  // The next action for the program with this index.
  Action next(std::size_t program);
  // False: the event does not happen in this state, and has changed nothing.
  bool happened(std::size_t program, Event event, Time now);
  State state(std::size_t program) const { return programs_.at(program).state; }

  // The source with this index has promised. Aborts unless all programs are held.
  void promised(std::size_t source = 0);
  // An operator says that the programs will go on nowhere else.
  void operator_commits();
  // Something failed here, or the source gave up. False: too late, the commit is being recorded.
  bool failed();

  // The step that is due now. There is no other before this one has ended: written().
  Step step(Time now);
  void written(Written result, Time now);

  // The source that the owner is to ask how it has decided, or whether it still goes on; the owner
  // tells the answer: source_answered(). Steps do not wait for that.
  std::optional<std::size_t> asks_source(Time now);
  // `answer`: none when the source does not answer.
  void source_answered(std::size_t source, std::optional<Answer> answer, Time now);

  // When step() or asks_source() has something to do.
  std::optional<Time> deadline() const;
  // Nothing is due or under way but a restore, and nothing becomes due by itself.
  bool rests() const;
  // All programs are held, and the source's decision takes longer than decisions take.
  bool in_doubt(Time now) const;

  const DestinationDecision& decision() const { return decision_; }

 private:
  struct Program {
    State state = State::kExpected;
    Action due = Action::kNone;
  };

  struct Source {
    Time ask_at{}, heard{};  // when to ask it; when it was heard last
    bool is_asked = false;   // a question has been given, and has not ended
  };

  explicit ArrivalMachine(DestinationDecision decision);
  bool apply(Program& program, Event event);
  void conclude();

  std::vector<Program> programs_;
  std::vector<Source> sources_;
  std::optional<Time> patience_;
  DestinationDecision decision_;
  bool is_stepping_ = false;   // a step has been given, and has not ended
  bool is_concluded_ = false;  // the programs have been told the decision
  Time held_at_{};             // when the last of the programs was held
  Time record_at_{};           // no record is given before
};

}  // namespace ferry::host
