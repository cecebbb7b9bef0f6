#include "host/move/source/together.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "base/clock.h"
#include "base/failure.h"
#include "base/parallel.h"
#include "ferry.pb.h"

namespace ferry::host {

NotMoved::NotMoved(const std::string& programs, bool are_several, const std::string& reason)
    : Failure(fmt::format("{} {} not moved: {}", programs, are_several ? "were" : "was", reason)),
      reason_(reason) {}

void run_together(const std::vector<std::shared_ptr<Move>>& moves, const Move::Progress& progress) {
  MoveGroup& group = moves.front()->group();
  // The parts of a group tell how far they are at the same time.
  std::mutex one_at_a_time;
  const Move::Progress in_turn = [&](const v1::MoveProgress& message) {
    std::lock_guard lock(one_at_a_time);
    if (progress) progress(message);
  };
  std::set<std::string> failures;
  std::size_t failed = 0;
  in_parallel(moves, [&](const auto& move) {
    try {
      move->run(in_turn);
      move->tell_end({});
    } catch (const Failure& failure) {
      move->tell_end(failure.what());
      std::lock_guard lock(one_at_a_time);
      failures.insert(failure.what());
      ++failed;
    }
  });
  if (failed > 0) {
    std::string line;
    for (const auto& each : failures) line += (line.empty() ? "" : "; ") + each;
    if (failed < moves.size() && group.committed()) {
      line += fmt::format("; the others go on on {}", group.peer().name());
    }
    throw Failure(line);
  }
}

double standstill_of(const std::vector<std::shared_ptr<Move>>& moves) {
  auto stopped = Move::Clock::time_point::max(), resumed = Move::Clock::time_point::min();
  for (const auto& move : moves) {
    stopped = std::min(stopped, move->outcome().stopped);
    resumed = std::max(resumed, move->outcome().resumed);
  }
  return milliseconds_between(stopped, resumed);
}

v1::GroupReport move_together(const std::string& host,
                              const std::vector<std::shared_ptr<Move>>& moves,
                              const Move::Progress& progress) {
  run_together(moves, progress);
  const MoveGroup& group = moves.front()->group();
  if (!group.committed()) {
    throw NotMoved(names_of(group.programs()), group.programs().size() > 1, group.failure());
  }
  v1::GroupReport report;
  report.set_from(host);
  report.set_to(moves.front()->group().peer().name());
  for (const auto& move : moves) {
    *report.add_programs() = *move->outcome().report;
    for (auto span : move->timeline()) {
      // Those of several programs overlap.
      if (!group.is_alone()) span.set_lane(move->unit().name() + ": " + span.lane());
      if (report.timeline_size() < kMostTold) *report.add_timeline() = std::move(span);
    }
  }
  report.set_blackout_ms(standstill_of(moves));
  return report;
}

}  // namespace ferry::host
