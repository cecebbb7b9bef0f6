#include "host/move/source/bring_back.h"

#include <fmt/core.h>

#include "base/failure.h"
#include "base/log.h"
#include "host/move/settle.h"
#include "host/peers/peer.h"
#include "host/standin/stopped_tree.h"
#include "host/units/unit.h"

namespace ferry::host {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBusyLimit{25};  // for a destination to clear up
// A destination that is not there says so sooner; one that is busy does not answer for longer.
constexpr std::chrono::seconds kBusy{5};

}  // namespace

void tell_of_abort(Peer& destination, std::uint64_t move_id, const Unit& unit) {
  const auto until = Clock::now() + kBusyLimit;
  for (;;) {
    const auto asked = Clock::now();
    std::string reason;
    if (ask_to_abort(destination, move_id, &reason) == Answer::kAborted) return;
    const auto now = Clock::now();
    if (unit.is_checkpointed() && now - asked > kBusy && now < until) continue;
    return log::warn("cannot tell {} of the abort: {}", destination.name(), reason);
  }
}

std::string bring_back(const Unit& unit, StoppedTree& tree, std::chrono::milliseconds limit,
                       const std::atomic<bool>& stopping) {
  for (bool again = false;; again = true) {
    if (unit.is_checkpointed() && stopping) return "this ferryd is ending";
    bool killed = false;
    const std::string error = unit.come_back(limit, &killed);
    if (!killed) return error;
    if (!tree.disown()) {
      return fmt::format("{}; its processes go on, but {} does not know of them: kill ends them",
                         error, unit.kind());
    }
    unit.end_restore();
    if (again) return error;
    log::warn("'{}' is restored once more: {}", unit.name(), error);
  }
}

void need_restorable_here(Answer answer, const std::string& program, const std::string& to) {
  if (answer == Answer::kAborted) return;
  throw Failure(fmt::format("'{}' cannot go on from this checkpoint: {}", program,
                            answer == Answer::kCommitted
                                ? fmt::format("it has moved to {}", to)
                                : fmt::format("it is being moved to {}", to)));
}

}  // namespace ferry::host
