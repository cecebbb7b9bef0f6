#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

// How a move is decided (docs/protocol.md, "A move decides once"): one state machine for each side,
// without I/O, clock or locks. Its owner carries out the step that next() gives and tells how it
// ended; ferryd and the simulation of whole moves run the same code.
//
// Two-phase commit with presumed abort. The source's record is a promise: from then on only the
// destination's answer decides. The destination's record is the commit.
//
//   source       open ─ restored ─► recording ─ durable ─► promised ─ committed there ─► committed
//                 │                    │                      └────── aborted there ───► aborted
//                 │                    └ unknown ─► revoking ─ aborted there ─► aborted
//                 └ any failure ─► aborted
//
//   destination  open ─► held ─ the source has promised ─► recording ─ durable ─► committed
//                 │       │                                    └ unknown ─► retracting ─► aborted
//                 └───────┴ any failure, the source's abort ─► aborted
//
// A crash loses the state, not the record. recovered() gives the state of a side that has nothing
// but its record: no record is an abort; about a promise the destination is asked again.
//
// A group of programs that move as one has one decision on each side, and one record: it is
// restored, or held, when all of its programs are, and fails when one of them fails. A group that
// comes from several hosts has a decision, with a promise, on each of these. The destination has
// one, as ever, and records the commit when all of them have promised.
namespace ferry::host {

enum class Side : std::uint8_t { kSource, kDestination };

// What the durable record of one side says. On the source's side kCommitted is the promise, and
// kConfirmed that the destination has committed as well: nobody has to be asked any more.
enum class Decision : std::uint8_t { kCommitted, kAborted, kConfirmed };

// How the writing of a record ended.
enum class Written : std::uint8_t {
  kDurable,
  kNot,      // certainly not on record
  kUnknown,  // a later reader may find it or not
};

// What a ferryd says of a move when it is asked to commit or abort it.
enum class Answer : std::uint8_t {
  kCommitted,
  kAborted,
  kUnknown,  // no answer, or none that binds
};

class SourceDecision {
 public:
  enum class State : std::uint8_t { kOpen, kRecording, kPromised, kRevoking, kCommitted, kAborted };
  enum class Step : std::uint8_t {
    kNone,
    kRecordCommit,  // → written()
    kAskCommit,     // ask the destination to commit; → answered(), until it is not kUnknown
    kAskAbort,      // ask the destination to abort; → answered(), until it is not kUnknown
  };

  // The state of a source's ferryd that has nothing but the record. It has to write no record of an
  // abort: no record says the same.
  static SourceDecision recovered(std::optional<Decision> record);

  explicit SourceDecision(std::size_t programs = 1) : programs_(programs) {}

  State state() const { return state_; }
  Step next() const;

  // The destination holds the program with this index, frozen and silent.
  void restored(std::size_t program = 0);
  void failed();                 // something failed, or somebody gave up; too late once promised
  void written(Written result);  // the record of kRecordCommit
  void answered(Answer answer);
  // An operator says that the destination will not go on with the program.
  void operator_aborts();

  bool decided() const { return state_ == State::kCommitted || state_ == State::kAborted; }
  bool committed() const { return state_ == State::kCommitted; }
  // The program may not run here, and only the destination (or an operator) can tell how the move
  // ends.
  bool promised() const { return state_ == State::kPromised; }
  // The answer for a destination that asks; it needs no more than a promise.
  Answer answer() const;

 private:
  std::size_t programs_;
  std::set<std::size_t> restored_;
  State state_ = State::kOpen;
};

class DestinationDecision {
 public:
  enum class State : std::uint8_t { kOpen, kHeld, kRecording, kRetracting, kCommitted, kAborted };
  enum class Step : std::uint8_t {
    kNone,
    kRecordCommit,  // → written()
    kRecordAbort,   // → written(), again while the result is kUnknown or kNot
  };

  static DestinationDecision recovered(std::optional<Decision> record);

  // `sources`: hosts from which the programs come.
  explicit DestinationDecision(std::size_t programs = 1, std::size_t sources = 1)
      : programs_(programs), sources_(sources) {}

  State state() const { return state_; }
  Step next() const;

  // Everything of the program with this index is restored, frozen and silent.
  void held(std::size_t program = 0);
  // Something failed here, or the source gave up. False: too late, the commit is being recorded.
  bool failed();
  // The source with this index has promised. False: nothing is held that could go on; the move is
  // aborted then.
  bool promised(std::size_t source = 0);
  bool has_promised(std::size_t source) const { return promised_.contains(source); }
  // An operator says that the programs will go on nowhere else.
  void operator_commits();
  void written(Written result);

  bool decided() const { return state_ == State::kCommitted || state_ == State::kAborted; }
  bool committed() const { return state_ == State::kCommitted; }
  bool waits() const { return state_ == State::kHeld; }  // for the sources' decisions
  // The answer for the source, which may let the program go on when it hears kAborted.
  Answer answer() const;

 private:
  std::size_t programs_, sources_ = 1;
  std::set<std::size_t> held_, promised_;
  State state_ = State::kOpen;
};

}  // namespace ferry::host
