#include <fstream>

#include "base/clock.h"
#include "base/failure.h"
#include "ferry.pb.h"
#include "host/journal/decision.h"
#include "host/move/source/move.h"
#include "host/peers/this_host.h"
#include "host/timeline/criu_log.h"

// The part of Move that tells how it went.
namespace ferry::host {

v1::MoveReport Move::report() const {
  auto report = report_of(tree_.timing(),
                          {stopped_, dumped_, transferred_, restored_, committed_at_, resumed_},
                          image_, rdma_ns_there_);
  report.set_program(unit_.name());
  report.set_from(host_.name);
  report.set_to(peer_.name());
  report.set_retransmitted_packets(retransmitted_);
  report.set_ahead_rounds(ahead_rounds_);
  report.set_ahead_bytes(ahead_bytes_);
  report.set_last_bytes(last_bytes_);
  report.set_rootfs_bytes(rootfs_ahead_);
  report.set_rootfs_last_bytes(rootfs_last_);
  if (const auto paused = unit_.paused()) {
    report.set_paused_ms(milliseconds_between(*paused, committed_at_));
  }
  for (const auto& program : inner_programs_) {
    auto* added = report.add_inner_programs();
    added->set_pid(program.pid);
    added->set_name(printable(program.name));
    added->set_stood_still_ms(program.stood_still_ms);
  }
  add_before_stop(&report);
  return report;
}

void Move::add_before_stop(v1::MoveReport* report) const {
  const auto ms = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  report->set_check_ms(ms(before_stop_.check));
  report->set_prepare_ms(ms(before_stop_.prepare));
  report->set_ahead_ms(ms(ahead_time_));
  report->set_rootfs_ms(ms(rootfs_time_));
}

// With mutex_.
void Move::tell_timeline() {
  const auto& timing = tree_.timing();
  const auto add = [this](const char* name, Clock::time_point begin, Clock::time_point end) {
    timeline_.add({kStepLane, name, begin, end});
  };
  add("stop", timing.began, stopped_);
  add("dump", stopped_, dumped_);
  add("transfer", dumped_, transferred_);
  add("restore", transferred_, restored_);
  add("commit", restored_, committed_at_);
  add("resume", committed_at_, resumed_);
  auto spans = timeline_.spans();
  for (auto& span : unit_.spans()) spans.push_back(std::move(span));
  std::ifstream log(images_ + "/dump.log");
  add_log(log, kPostDump, &spans);
  to_message(spans, host_.name, &told_timeline_);
  add_theirs(spans, timeline_there_, peer_.name(), &told_timeline_);
}

void Move::tell_begin() const {
  v1::PastMove move;
  move.set_move_id(move_id_);
  if (!group_->is_alone()) move.set_group(group_->id());
  move.set_program(unit_.name());
  move.set_from(host_.name);
  move.set_to(peer_.name());
  move.set_owner(owner_of_program(unit_.root()));
  if (options_.cut) move.set_kind("checkpoint");
  side_.accounts.begun(Side::kSource, std::move(move));
}

void Move::tell_end(const std::string& failure) const {
  if (group_->undecided()) return;  // the next ferryd will know
  MoveEnd end;
  end.to = host_there_;
  if (outcome_.report) {
    end.outcome = MoveOutcome::kMoved;
    end.parts = outcome_.report.get();
    return side_.accounts.ended(Side::kSource, move_id_, end);
  }
  std::lock_guard lock(mutex_);
  // A ferryd that ends has waited neither for the destination's word, nor for the runtime that is to
  // restore the program here: the next one does, and tells.
  if (host_.stopping && (group_->committed() ? failed_there_.empty() : !not_back_.empty())) return;
  StepEnds ends{stopped_, dumped_, transferred_, restored_, {}, {}};
  if (is_cut()) {
    end.outcome = options_.cut->ends_programs() ? MoveOutcome::kEnded : MoveOutcome::kReturned;
    ends.resumed = resumed_;
    auto parts = report_of(tree_.timing(), ends, image_, 0);
    end.parts = &parts;
    return side_.accounts.ended(Side::kSource, move_id_, end);
  }
  if (group_->committed()) {
    end.outcome = MoveOutcome::kLost;
    end.step = "resume";
    end.reason = failure;
  } else {
    end.outcome = !not_back_.empty()      ? MoveOutcome::kLost
                  : group_->is_given_up() ? MoveOutcome::kAborted
                                          : MoveOutcome::kFailed;
    end.step = group_->failed_step();
    end.reason = not_back_.empty() ? group_->failure() : failure;
    if (not_back_.empty()) ends.resumed = resumed_;
  }
  auto parts = report_of(tree_.timing(), ends, image_, 0);
  add_before_stop(&parts);
  end.parts = &parts;
  side_.accounts.ended(Side::kSource, move_id_, end);
}

}  // namespace ferry::host
