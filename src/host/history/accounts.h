#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "host/history/expected_stop.h"
#include "host/journal/decision.h"
#include "host/peers/messages.h"

// Takes what moves tell when they begin and end, for the history, the counters and the log.
namespace ferry::host {

class History;
class MoveCounters;

enum class MoveOutcome : std::uint8_t {
  kMoved,     // the program goes on at the destination
  kFailed,    // the program goes on at the source, because something failed
  kAborted,   // it goes on at the source, because the user, an operator or the other host gave up
  kReturned,  // of a checkpoint: its program goes on where it was
  kEnded,     // of a checkpoint: its program was to end with it
  kLost,      // the program goes on nowhere
};

struct MoveEnd {
  MoveOutcome outcome = MoveOutcome::kFailed;
  std::string step, reason;    // as in PastMove
  std::string to;              // empty: as it was told when the move began
  std::optional<uid_t> owner;  // nothing: as it was told when the move began
  const v1::MoveReport* parts = nullptr;
};

class Accounts {
 public:
  Accounts(History& history, MoveCounters& counters) : history_(history), counters_(counters) {}

  // `move` has the ids, the names and the owner; begun() adds the rest.
  void begun(Side side, v1::PastMove move);
  // A move that is not under way, because it has ended already, is left as it is.
  void ended(Side side, std::uint64_t move_id, const MoveEnd& end);

  // What earlier moves tell of one of this program to this host.
  ExpectedStop expected_stop(const std::string& program, const std::string& to) const;

  // Ends, as failed, the moves under way for which `is_known` says no: the ferryd that led them has ended, so nobody
  // else will tell how they ended.
  using IsKnown = std::function<bool(Side side, std::uint64_t move_id)>;
  void end_forgotten(const IsKnown& is_known);

 private:
  History& history_;
  MoveCounters& counters_;
};

// The user to whom all processes of a program belong; 0 when there is no such user.
uid_t owner_of_program(pid_t root);

// Reasons that several callers give.
inline constexpr char kFerrydEnded[] = "the ferryd that led it ended in the middle of it";
inline constexpr char kOperatorDecided[] = "an operator decided so";

}  // namespace ferry::host
