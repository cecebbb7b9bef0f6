#include "host/move/move_group.h"

#include <fmt/core.h>

#include <cerrno>

#include "base/failure.h"
#include "base/log.h"
#include "host/move/settle.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kGlance{100};  // between looks at stopping_, and questions

}  // namespace

std::string names_of(const std::vector<MoveGroup::Program>& programs) {
  std::string names;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (i > 0) names += i + 1 < programs.size() ? ", " : " and ";
    names += fmt::format("'{}'", programs[i].unit->name());
  }
  return names;
}

MoveGroup::MoveGroup(DecisionLog& decisions, const std::atomic<bool>& stopping,
                     const Credentials* credentials, std::vector<Program> programs,
                     const std::string& to)
    : decisions_(decisions),
      stopping_(stopping),
      programs_(std::move(programs)),
      peer_(to, credentials),
      decision_(programs_.size()) {}

void MoveGroup::failed(std::size_t program, const std::string& reason) {
  std::lock_guard lock(mutex_);
  decision_.failed();
  if (!culprit_) culprit_ = program;
  if (culprit_ == program && failure_.empty() && !reason.empty()) {
    failure_ =
        is_alone() ? reason : fmt::format("'{}': {}", programs_[program].unit->name(), reason);
  }
  changed_.notify_all();
}

void MoveGroup::need_open() const {
  std::lock_guard lock(mutex_);
  if (decision_.decided() && !decision_.committed()) throw Failure("another program failed");
}

DecisionLog::Record MoveGroup::record(Decision decision) const {
  DecisionLog::Record record{decision, {}, {}, {}};
  for (const auto& program : programs_) {
    record.program += (record.program.empty() ? "" : ", ") + program.unit->name();
    record.moves.push_back(program.move_id);
  }
  if (decision == Decision::kCommitted) record.peer = peer_.record();
  return record;
}

int MoveGroup::commit(std::size_t program) {
  std::unique_lock lock(mutex_);
  decision_.restored(program);
  // Who was the last decides for all.
  if (decision_.state() == SourceDecision::State::kRecording) return decide(lock);
  while (!decision_.decided()) {
    if (stopping_) return EAGAIN;
    changed_.wait_for(lock, kGlance);
  }
  return decision_.committed() ? 0 : 1;
}

int MoveGroup::decide(std::unique_lock<std::mutex>& lock) {
  std::string refusal;
  bool is_first = true;
  for (SourceDecision::Step step; (step = decision_.next()) != SourceDecision::Step::kNone;) {
    lock.unlock();
    if (step == SourceDecision::Step::kRecordCommit) {
      const auto written =
          leave_addresses(&refusal)
              ? decisions_.write(Side::kSource, record(Decision::kCommitted), &refusal)
              : Written::kNot;
      if (written == Written::kDurable) publish_moved();
      lock.lock();
      decision_.written(written);
      continue;
    }
    const Answer answer = step == SourceDecision::Step::kAskCommit
                              ? ask_to_commit(peer_, id(), &refusal)
                              : ask_to_abort(peer_, id(), &refusal);
    lock.lock();
    decision_.answered(answer);
    if (decision_.decided()) break;
    if (is_first) {
      log::error("the move of {} is promised and {} does not answer: frozen until it does",
                 names_of(programs_), peer_.name());
    }
    is_first = false;
    in_doubt_ = true;
    // The record stands: who comes after us asks the destination.
    if (stopping_) return EAGAIN;
    changed_.wait_for(lock, kGlance, [this] { return decision_.decided(); });
    if (decision_.decided()) refusal = "an operator decided so";
  }
  in_doubt_ = false;
  decided_at_ = std::chrono::steady_clock::now();
  const bool committed = decision_.committed();
  if (!committed && failure_.empty()) failure_ = refusal;
  changed_.notify_all();
  lock.unlock();
  // Decided: what fails here is reported only.
  report_failure([&] {
    decisions_.record(Side::kSource, record(committed ? Decision::kConfirmed : Decision::kAborted));
  });
  return committed ? 0 : 1;
}

// An address has one place: stand-ins have answered at those that move along until here.
bool MoveGroup::leave_addresses(std::string* error) const {
  try {
    for (const auto& program : programs_) {
      if (program.unit->rdma_moves()) program.unit->switch_network("deactivate");
    }
    return true;
  } catch (const Failure& failure) {
    *error = failure.what();
    return false;
  }
}

// Supervisors see their containers' programs killed: they must know why.
void MoveGroup::publish_moved() const {
  for (const auto& program : programs_) {
    report_failure([&] { program.unit->publish(); });
  }
}

bool MoveGroup::wait_until_decided() const {
  std::unique_lock lock(mutex_);
  while (!decision_.decided() && !stopping_) changed_.wait_for(lock, kGlance);
  return decision_.decided();
}

bool MoveGroup::undecided() const {
  std::lock_guard lock(mutex_);
  return !decision_.decided();
}

bool MoveGroup::committed() const {
  std::lock_guard lock(mutex_);
  return decision_.committed();
}

std::chrono::steady_clock::time_point MoveGroup::decided_at() const {
  std::lock_guard lock(mutex_);
  return decided_at_;
}

bool MoveGroup::in_doubt() const {
  std::lock_guard lock(mutex_);
  return in_doubt_;
}

Answer MoveGroup::answer() const {
  std::lock_guard lock(mutex_);
  return decision_.answer();
}

void MoveGroup::resolve_abort() {
  std::lock_guard lock(mutex_);
  // Its destination may have answered meanwhile.
  if (decision_.decided()) {
    throw Failure(fmt::format("{} {} decided just now: see ferry ps", names_of(programs_),
                              is_alone() ? "was" : "were"));
  }
  // On record first: a destination that asks later must not hear of the promise.
  decisions_.record(Side::kSource, record(Decision::kAborted));
  decision_.operator_aborts();
  changed_.notify_all();
}

std::string MoveGroup::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace ferry::host
