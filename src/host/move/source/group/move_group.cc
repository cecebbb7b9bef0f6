#include "host/move/source/group/move_group.h"

#include <fmt/core.h>

#include <cerrno>

#include "base/failure.h"
#include "base/log.h"
#include "host/history/accounts.h"
#include "host/move/settle.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kGroupGlance{100};  // between looks at stopping_, and questions

using Action = MoveMachine::Action;
using State = MoveGroup::State;
using Worker = MoveGroup::Worker;

std::optional<Worker> worker_of(Action action) {
  switch (action) {
    case Action::kNone: return std::nullopt;
    case Action::kTransfer:
    case Action::kRestore:
    case Action::kLeave: return Worker::kDump;
    default: return Worker::kMove;
  }
}

// Whether the worker has nothing more to do for a program in this state.
bool is_done(Worker worker, State state) {
  switch (state) {
    case State::kReturning: return worker == Worker::kDump;
    case State::kBack:
    case State::kGone:
    case State::kOver: return true;
    default: return false;
  }
}

// The step to which a program in this state has come, as users know the steps.
const char* step_of(State state) {
  switch (state) {
    case State::kChecking:
    case State::kChecked: return "check";
    case State::kPreparing:
    case State::kPrepared: return "prepare";
    case State::kCopying:
    case State::kCopied: return "copy ahead";
    case State::kStopping: return "stop";
    case State::kStopped:
    case State::kFrozen: return "dump";
    case State::kTransferring: return "transfer";
    case State::kRestoring: return "restore";
    default: return "commit";
  }
}

}  // namespace

std::string names_of(const std::vector<MoveGroup::Program>& programs) {
  std::string names;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (i > 0) names += i + 1 < programs.size() ? ", " : " and ";
    names += fmt::format("'{}'", programs[i].unit->name());
  }
  return names;
}

MoveGroup::MoveGroup(DecisionLog& decisions, Limits::Time standstill,
                     const std::atomic<bool>& stopping, const Credentials* credentials,
                     std::vector<Program> programs, const std::string& to,
                     std::optional<Others> others)
    : decisions_(decisions),
      standstill_(standstill),
      stopping_(stopping),
      programs_(std::move(programs)),
      others_(std::move(others)),
      peer_(to, credentials),
      machine_(programs_.size(), standstill, others_.has_value()) {}

MoveMachine::Time MoveGroup::now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

MoveGroup::Action MoveGroup::next(std::size_t program, Worker worker) {
  Lock lock(mutex_);
  for (;;) {
    if (worker == Worker::kDump) {
      if (const auto step = machine_.step(now()); step != MoveMachine::Step::kNone) {
        decide(lock, step);
        continue;
      }
    }
    if (worker_of(machine_.due(program)) == worker) return machine_.next(program, now());
    if (is_done(worker, machine_.state(program))) return Action::kNone;
    if (stopping_ && !decision().decided()) return Action::kNone;
    changed_.wait_for(lock, kGroupGlance);
  }
}

void MoveGroup::happened(std::size_t program, Event event) {
  std::lock_guard lock(mutex_);
  if (!machine_.happened(program, event)) throw Failure("another program failed");
  changed_.notify_all();
}

void MoveGroup::await_suspensions(std::size_t program, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  suspended_.insert(program);
  changed_.notify_all();
  const auto is_aborted = [this] { return decision().decided() && !decision().committed(); };
  const auto are_all = [this] {
    return suspended_.size() == programs_.size() && (!others_ || are_others_suspended_);
  };
  if (!changed_.wait_for(lock, limit, [&] { return are_all() || is_aborted(); })) {
    throw Failure(fmt::format("the peers of another program of the group do not stop within {} ms",
                              limit.count()));
  }
  if (is_aborted()) throw Failure("another program failed");
}

void MoveGroup::failed(std::size_t program, const std::string& reason) {
  std::lock_guard lock(mutex_);
  const State state = machine_.state(program);
  machine_.failed();
  note_failure(program, state, reason);
}

bool MoveGroup::give_up(std::size_t program) {
  std::lock_guard lock(mutex_);
  const State state = machine_.state(program);
  if (!machine_.failed()) return false;
  if (!culprit_) is_given_up_ = true;
  note_failure(program, state, "it was given up");
  return true;
}

void MoveGroup::unneeded(std::size_t program) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return machine_.state(program) == State::kGone; });
  machine_.happened(program, Event::kUnneeded);
}

void MoveGroup::time_passed(std::size_t program) {
  std::lock_guard lock(mutex_);
  const State state = machine_.state(program);
  if (machine_.time_passed(now())) note_failure(program, state, stood_still(standstill_));
}

// With mutex_.
void MoveGroup::note_failure(std::size_t program, State state, const std::string& reason) {
  if (!culprit_) failed_in_ = state;
  if (!culprit_) culprit_ = program;
  if (culprit_ == program && failure_.empty() && !reason.empty()) {
    failure_ =
        is_alone() ? reason : fmt::format("'{}': {}", programs_[program].unit->name(), reason);
  }
  changed_.notify_all();
}

void MoveGroup::need_open() const {
  std::lock_guard lock(mutex_);
  if (decision().decided() && !decision().committed()) throw Failure("another program failed");
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

void MoveGroup::decide(Lock& lock, MoveMachine::Step step) {
  switch (step) {
    case MoveMachine::Step::kNone: return;
    case MoveMachine::Step::kRecordPromise: record_promise(lock); break;
    case MoveMachine::Step::kAskCommit:
    case MoveMachine::Step::kAskAbort: ask(lock, step); break;
    case MoveMachine::Step::kRecordOutcome: {
      const auto outcome = decision().committed() ? Decision::kConfirmed : Decision::kAborted;
      lock.unlock();
      // It is decided: what fails here is reported only.
      report_failure([&] { decisions_.record(Side::kSource, record(outcome)); });
      lock.lock();
      return;
    }
  }
  if (!decision().decided()) return;
  in_doubt_ = false;
  decided_at_ = std::chrono::steady_clock::now();
  if (!decision().committed() && failure_.empty()) failure_ = refusal_;
  changed_.notify_all();
}

void MoveGroup::record_promise(Lock& lock) {
  std::string refusal;
  lock.unlock();
  const auto written = leave_addresses(&refusal)
                           ? decisions_.write(Side::kSource, record(Decision::kCommitted), &refusal)
                           : Written::kNot;
  if (written == Written::kDurable) publish_moved();
  lock.lock();
  refusal_ = refusal;
  machine_.written(written);
}

void MoveGroup::ask(Lock& lock, MoveMachine::Step step) {
  std::string refusal;
  lock.unlock();
  const Answer answer = step == MoveMachine::Step::kAskCommit
                            ? ask_to_commit(peer_, programs_.front().move_id, &refusal)
                            : ask_to_abort(peer_, programs_.front().move_id, &refusal);
  lock.lock();
  const bool by_operator = decision().decided();
  refusal_ = by_operator ? kOperatorDecided : refusal;
  machine_.answered(answer, now());
  if (decision().decided()) return;
  if (!in_doubt_) {
    log::error("the move of {} is promised and {} does not answer: frozen until it does",
               names_of(programs_), peer_.name());
  }
  in_doubt_ = true;
}

// An address has one place: at an address that moves along, stand-ins here have answered until now.
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

// The supervisor of a container sees its program killed, and must find the reason.
void MoveGroup::publish_moved() const {
  for (const auto& program : programs_) {
    report_failure([&] { program.unit->publish(); });
  }
}

bool MoveGroup::await_meeting(Meeting meeting) const {
  const auto are_there = [&] {
    switch (meeting) {
      case Meeting::kChecked: return machine_.waits_for_others() == State::kChecked;
      case Meeting::kPrepared: return machine_.waits_for_others() == State::kPrepared;
      case Meeting::kCopied: return machine_.waits_for_others() == State::kCopied;
      default: return suspended_.size() == programs_.size();
    }
  };
  std::unique_lock lock(mutex_);
  while (!decision().decided() && !stopping_) {
    if (are_there()) return true;
    changed_.wait_for(lock, kGroupGlance);
  }
  return false;
}

void MoveGroup::others_came() {
  std::lock_guard lock(mutex_);
  if (machine_.waits_for_others()) {
    machine_.others_came();
  } else {
    are_others_suspended_ = suspended_.size() == programs_.size();
  }
  changed_.notify_all();
}

void MoveGroup::others_failed() {
  std::lock_guard lock(mutex_);
  const State state = machine_.state(0);
  if (decision().decided() || !machine_.failed()) return;
  failed_in_ = state;
  culprit_ = programs_.size();  // none of these
  failure_ = "the programs of other hosts that were to move with it do not move";
  changed_.notify_all();
}

bool MoveGroup::wait_until_decided() const {
  std::unique_lock lock(mutex_);
  while (!decision().decided() && !stopping_) changed_.wait_for(lock, kGroupGlance);
  return decision().decided();
}

bool MoveGroup::undecided() const {
  std::lock_guard lock(mutex_);
  return !decision().decided();
}

bool MoveGroup::committed() const {
  std::lock_guard lock(mutex_);
  return decision().committed();
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
  return decision().answer();
}

void MoveGroup::resolve_abort() {
  // A destination that can be asked may have committed, and what it has not committed it gives up.
  std::string ignored;
  if (ask_to_abort(peer_, programs_.front().move_id, &ignored) == Answer::kCommitted) {
    throw Failure(is_committed_there(names_of(programs_), peer_.name()));
  }
  std::lock_guard lock(mutex_);
  // The destination may have answered meanwhile.
  if (decision().decided() && !decision().committed()) return;
  if (decision().decided()) {
    throw Failure(fmt::format("{} {} decided just now: see ferry ps", names_of(programs_),
                              is_alone() ? "was" : "were"));
  }
  // On record first: a destination that asks later must not hear of the promise.
  decisions_.record(Side::kSource, record(Decision::kAborted));
  machine_.operator_aborts();
  in_doubt_ = false;
  decided_at_ = std::chrono::steady_clock::now();
  if (failure_.empty()) failure_ = kOperatorDecided;
  is_given_up_ = true;
  changed_.notify_all();
}

std::string MoveGroup::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::string MoveGroup::failed_step() const {
  std::lock_guard lock(mutex_);
  if (culprit_) return step_of(failed_in_);
  return failure_.empty() ? "" : step_of(State::kHeldThere);  // the decision itself
}

bool MoveGroup::is_given_up() const {
  std::lock_guard lock(mutex_);
  return is_given_up_;
}

bool MoveGroup::is_over(std::size_t program) const {
  std::lock_guard lock(mutex_);
  const auto state = machine_.state(program);
  return state == MoveMachine::State::kOver || state == MoveMachine::State::kBack;
}

}  // namespace ferry::host
