#include "host/move/arrival_group.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "base/failure.h"
#include "base/log.h"
#include "base/parallel.h"
#include "host/move/arrival.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kRecordPause{500};  // before a record is tried again

}  // namespace

void ArrivalGroup::need(std::size_t programs, const std::string& from) const {
  if (programs != programs_ || from != from_) {
    throw Failure("refused: this is no program of that group");
  }
}

void ArrivalGroup::join(Arrival& arrival) {
  std::lock_guard lock(mutex);
  if (decision.decided()) throw Failure("the move was aborted");
  arrivals_.push_back(&arrival);
}

void ArrivalGroup::leave(Arrival& arrival) {
  std::lock_guard lock(mutex);
  std::erase(arrivals_, &arrival);
}

std::vector<Arrival*> ArrivalGroup::arrivals() const {
  std::lock_guard lock(mutex);
  return arrivals_;
}

// One record for all: it is never on the disk in part.
Written ArrivalGroup::write(Decision what, std::string* error) {
  DecisionLog::Record record{what, {}, {}, {}};
  for (const Arrival* arrival : arrivals()) {
    record.program += (record.program.empty() ? "" : ", ") + arrival->program();
    record.moves.push_back(arrival->move_id());
    try {
      if (what == Decision::kCommitted) arrival->stage();
    } catch (const Failure& failure) {
      *error = failure.what();
      return Written::kNot;
    }
  }
  return decisions_.write(Side::kDestination, record, error);
}

Answer ArrivalGroup::commit(std::string* reason) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return !deciding; });
  const bool undecided = !decision.decided();
  for (const Arrival* arrival : arrivals_) {
    if (undecided && arrival->criu_ended_ && decision.failed()) *reason = arrival->why_lost();
  }
  if (!decision.promised() && reason->empty()) *reason = "not all is here that was to go on";
  deciding = undecided;  // holds abort() and CRIU off
  for (DestinationDecision::Step step;
       (step = decision.next()) != DestinationDecision::Step::kNone;) {
    const bool commits = step == DestinationDecision::Step::kRecordCommit;
    lock.unlock();
    std::string error;
    const auto written = write(commits ? Decision::kCommitted : Decision::kAborted, &error);
    if (written != Written::kDurable) *reason = error;
    if (!commits && written != Written::kDurable) {
      log::error("what has arrived from {} stays frozen: {}", from_, error);
      std::this_thread::sleep_for(kRecordPause);
    }
    lock.lock();
    decision.written(written);
    if (stopping_) break;
  }
  if (undecided && decision.committed()) {
    lock.unlock();
    in_parallel(arrivals(), [](Arrival* arrival) { arrival->connect(); });
    lock.lock();
  }
  deciding = false;
  const Answer answer = decision.answer();
  changed.notify_all();
  lock.unlock();
  if (answer == Answer::kAborted) {
    if (reason->empty()) *reason = "the move was aborted";
    undo(*reason);
  }
  return answer;
}

Answer ArrivalGroup::abort(const std::string& reason) {
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !deciding; });
    if (!decision.failed()) return decision.answer();
    changed.notify_all();
  }
  undo(reason);
  return Answer::kAborted;
}

// After the abort. Who is not the first waits until it is done.
void ArrivalGroup::undo(const std::string& reason) {
  std::call_once(undone_, [&] {
    std::string error;
    // No record says the same.
    if (write(Decision::kAborted, &error) != Written::kDurable) log::error("{}", error);
    in_parallel(arrivals(), [&](Arrival* arrival) { arrival->undo(reason); });
  });
}

void ArrivalGroup::wait_until_decided(std::unique_lock<std::mutex>& lock) {
  changed.wait(lock, [this] { return decision.decided() && !deciding; });
}

}  // namespace ferry::host
