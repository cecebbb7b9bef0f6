#include <algorithm>
#include <fstream>

#include "base/clock.h"
#include "base/failure.h"
#include "ferry.pb.h"
#include "host/move/destination/arrival.h"
#include "host/peers/this_host.h"
#include "host/timeline/criu_log.h"
#include "host/timeline/timeline_message.h"

// The part of Arrival that tells how it went.
namespace ferry::host {

void Arrival::tell_begin() const {
  v1::PastMove move;
  move.set_move_id(move_id_);
  move.set_group(group_id_);
  move.set_program(program_);
  move.set_from(from().empty() ? group_->source(index_).address : from());
  move.set_to(host_.name);
  if (!group_->has_source()) move.set_kind("restart");
  accounts_.begun(Side::kDestination, std::move(move));
}

std::vector<ProcessSlots> Arrival::bind(const std::vector<ProcessSlots>& wanted) {
  try {
    return bind_all(wanted);
  } catch (const Failure& failure) {
    note_failure(failure.what());
    throw;
  }
}

std::vector<ProcessSlots> Arrival::restore(std::chrono::milliseconds limit,
                                           const Redirection& stdio, bool timeline) {
  const auto step = timeline_.step(kCallLane, kRestoreCall);
  tells_timeline_ = timeline;
  try {
    return restore_here(limit, stdio);
  } catch (const Failure& failure) {
    note_failure(failure.what());
    throw;
  }
}

// When CRIU has ended.
void Arrival::add_criu_log() {
  if (!tells_timeline_) return;
  auto spans = timeline_.spans();
  const auto known = spans.size();
  std::ifstream log(images_ + "/restore.log");
  add_log(log, kPostRestore, &spans);
  for (auto span = known; span < spans.size(); ++span) timeline_.add(std::move(spans[span]));
}

// Once, when CRIU has ended and all go on.
void Arrival::tell_timeline() {
  {
    std::lock_guard lock(mutex_);
    const bool all = std::all_of(processes_.begin(), processes_.end(),
                                 [](const Process& process) { return process.back; });
    if (!tells_timeline_ || told_timeline_ || !criu_ended_ || !all) return;
    told_timeline_ = true;
  }
  auto spans = timeline_.spans();
  for (auto& span : unit_->spans()) spans.push_back(std::move(span));
  v1::WatchEvent event;
  to_message(spans, host_.name, event.mutable_timeline()->mutable_spans());
  push(std::move(event));
}

bool Arrival::owes_timeline() const {
  std::lock_guard lock(mutex_);
  return tells_timeline_ && !told_timeline_;
}

// With mutex_. The step to which it has come, as users know the steps.
std::string Arrival::step() const {
  const std::chrono::steady_clock::time_point never;
  if (held_ != never) return "commit";
  if (whole_ != never) return "restore";
  for (const auto& process : processes_) {
    if (!process.contexts.empty()) return "transfer";
  }
  return "prepare";
}

// What a step of the group's other programs says, which was aborted meanwhile, is no reason.
void Arrival::note_failure(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty() || (error_.empty() && reason == group_->failure())) return;
  failed_step_ = step();
  failure_ = reason;
}

void Arrival::tell_undone(const std::string& reason) {
  v1::MoveReport parts;
  parts.set_image_bytes(image_bytes_);
  MoveEnd end;
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty() && !error_.empty()) failure_ = error_;
    // Nobody gives up what ends with this ferryd.
    const bool is_given_up = failure_.empty() && !host_.stopping;
    end.outcome = is_given_up ? MoveOutcome::kAborted : MoveOutcome::kFailed;
    end.reason = failure_.empty() ? reason : failure_;
    end.step = failed_step_.empty() ? step() : failed_step_;
  }
  end.parts = &parts;
  accounts_.ended(Side::kDestination, move_id_, end);
}

// All its processes go on here.
void Arrival::tell_here() {
  const auto now = std::chrono::steady_clock::now(), never = decltype(now)();
  v1::MoveReport parts;
  MoveEnd end;
  end.outcome = MoveOutcome::kMoved;
  end.owner = owner_of_program(root());
  {
    std::lock_guard lock(mutex_);
    if (!is_committed()) return;
    if (whole_ != never && held_ != never)
      parts.set_restore_ms(milliseconds_between(whole_, held_));
    if (committed_at_ != never) {
      parts.set_commit_ms(held_ == never ? 0 : milliseconds_between(held_, committed_at_));
      parts.set_resume_ms(milliseconds_between(committed_at_, now));
    }
    std::uint64_t rdma_ns = 0;
    for (const auto& process : processes_) rdma_ns = std::max(rdma_ns, process.rdma_ns);
    parts.set_rdma_resume_ms(static_cast<double>(rdma_ns) / 1e6);
  }
  parts.set_rdma_share_ms(parts.rdma_resume_ms());
  parts.set_image_bytes(image_bytes_);
  end.parts = &parts;
  accounts_.ended(Side::kDestination, move_id_, end);
}

// It was committed. Whoever went on before, and then ended, is not lost: that was told.
void Arrival::tell_lost(const std::string& reason) {
  v1::MoveReport parts;
  parts.set_image_bytes(image_bytes_);
  accounts_.ended(Side::kDestination, move_id_,
                  {MoveOutcome::kLost, "resume", reason, {}, {}, &parts});
}

}  // namespace ferry::host
