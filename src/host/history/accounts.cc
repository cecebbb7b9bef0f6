#include "host/history/accounts.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/failure.h"
#include "base/log.h"
#include "base/log_fields.h"
#include "host/history/history.h"
#include "host/history/move_counters.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

const char* name_of(MoveOutcome outcome) {
  switch (outcome) {
    case MoveOutcome::kMoved: return History::kMoved;
    case MoveOutcome::kFailed: return "failed";
    case MoveOutcome::kAborted: return "aborted";
    case MoveOutcome::kReturned: return "returned";
    case MoveOutcome::kEnded: return "ended";
    default: return "lost";
  }
}

std::string now() {
  const auto time = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(time), ms);
}

std::string id_of(std::uint64_t move_id) {
  return fmt::format("{:016x}", move_id);
}

// The part of the log line that is for people; fields() gives the part for programs.
std::string sentence(const v1::PastMove& move) {
  const std::string what = move.kind() == "checkpoint"
                               ? fmt::format("the checkpoint of '{}'", move.program())
                               : fmt::format("'{}'", move.program());
  const std::string& outcome = move.outcome();
  const bool leaves = move.direction() == direction_of(Side::kSource);
  if (move.kind() == "restart" && outcome != "lost") {
    return fmt::format("{} {} on from its checkpoint", what,
                       outcome == History::kMoved ? "goes" : "does not go");
  }
  if (outcome == History::kMoved) {
    if (!leaves) return fmt::format("{} arrived from {}", what, move.from());
    if (move.parts().blackout_ms() <= 0) return fmt::format("{} moved to {}", what, move.to());
    return fmt::format("{} moved to {}: blackout {:.1f} ms", what, move.to(),
                       move.parts().blackout_ms());
  }
  if (outcome == "returned") return fmt::format("{} is over: the program goes on here", what);
  if (outcome == "ended") return fmt::format("{} is over: the program has ended", what);
  if (outcome == "lost") return fmt::format("{} goes on nowhere", what);
  return fmt::format("{} {}", what, leaves ? "was not moved" : "does not arrive");
}

std::string fields(const v1::PastMove& move) {
  using log::field;
  const v1::MoveReport& parts = move.parts();
  std::string text = field("move", id_of(move.move_id()));
  if (move.group() != 0) text += field("group", id_of(move.group()));
  text += field("kind", move.kind()) + field("direction", move.direction()) +
          field("program", move.program()) + field("from", move.from()) + field("to", move.to());
  if (!move.step().empty()) text += field("step", move.step());
  text += field("result", move.outcome());
  if (parts.blackout_ms() > 0)
    text += field("blackout_ms", fmt::format("{:.1f}", parts.blackout_ms()));
  if (parts.image_bytes() > 0) text += field("image_bytes", std::to_string(parts.image_bytes()));
  if (!move.reason().empty()) text += field("reason", move.reason());
  return text;
}

}  // namespace

void Accounts::begun(Side side, v1::PastMove move) {
  move.set_direction(direction_of(side));
  move.set_began(now());
  if (move.kind().empty()) move.set_kind("move");
  history_.begin(move);
  counters_.begun(move);
}

void Accounts::ended(Side side, std::uint64_t move_id, const MoveEnd& end) {
  const auto move = history_.end(move_id, side, [&](v1::PastMove& past) {
    past.set_ended(now());
    past.set_outcome(name_of(end.outcome));
    past.set_step(end.step);
    past.set_reason(end.reason);
    if (!end.to.empty()) past.set_to(end.to);
    if (end.owner) past.set_owner(*end.owner);
    if (end.parts != nullptr) *past.mutable_parts() = *end.parts;
  });
  if (!move) return;
  counters_.ended(*move);
  log::info("{}{}", sentence(*move), fields(*move));
}

ExpectedStop Accounts::expected_stop(const std::string& program, const std::string& to) const {
  return host::expected_stop(history_.moves(), program, to);
}

void Accounts::end_forgotten(const IsKnown& is_known) {
  for (const auto& move : history_.under_way()) {
    const Side side =
        move.direction() == direction_of(Side::kSource) ? Side::kSource : Side::kDestination;
    if (is_known(side, move.move_id())) continue;
    ended(side, move.move_id(), {MoveOutcome::kFailed, {}, kFerrydEnded, {}, {}, nullptr});
  }
}

uid_t owner_of_program(pid_t root) {
  const auto user = owner_of(root);
  const auto tree = process_tree(root);
  const bool is_all =
      std::all_of(tree.begin(), tree.end(), [&](pid_t pid) { return owner_of(pid) == user; });
  return user && !tree.empty() && is_all ? *user : 0;
}

}  // namespace ferry::host
