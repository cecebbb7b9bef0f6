#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "host/journal/decision.h"
#include "host/peers/messages.h"

// What moves tell when they begin and end: it goes into the history, the counters and the log.
namespace ferry::host {

class History;
class MoveCounters;

enum class MoveOutcome : std::uint8_t {
  kMoved,     // the program goes on at the destination
  kFailed,    // it goes on at the source, because something failed
  kAborted,   // the same, because the user, an operator or the other host gave the move up
  kReturned,  // of a checkpoint: its program goes on where it was
  kLost,      // it goes on nowhere
};

struct MoveEnd {
  MoveOutcome outcome = MoveOutcome::kFailed;
  std::string step, reason;    // as in PastMove
  std::string to;              // empty: as it was told when the move began
  std::optional<uid_t> owner;  // nothing: the same
  const v1::MoveReport* parts = nullptr;
};

class Accounts {
 public:
  Accounts(History& history, MoveCounters& counters) : history_(history), counters_(counters) {}

  // Has the ids, names and the owner; the rest is added here.
  void begun(Side side, v1::PastMove move);
  // A move that is not under way, because it has ended already, is left as it is.
  void ended(Side side, std::uint64_t move_id, const MoveEnd& end);

  // Nobody will tell how the moves end for which `is_known` says no: the ferryd that led them has
  // ended.
  using IsKnown = std::function<bool(Side side, std::uint64_t move_id)>;
  void end_forgotten(const IsKnown& is_known);

 private:
  History& history_;
  MoveCounters& counters_;
};

// The user to whom all processes of a program belong; 0 when there is none.
uid_t owner_of_program(pid_t root);

// Reasons that several tell.
inline constexpr char kFerrydEnded[] = "the ferryd that led it ended in the middle of it";
inline constexpr char kOperatorDecided[] = "an operator decided so";

}  // namespace ferry::host
