#include "host/move/destination/arrival_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/parallel.h"
#include "host/move/destination/arrival.h"
#include "host/move/settle.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kGlance{100};       // between looks at stopping_
constexpr std::chrono::milliseconds kAnswerTime{1000};  // for a source to answer
constexpr std::chrono::seconds kPromiseTime{2};         // for the other sources to promise, too

}  // namespace

ArrivalGroup::ArrivalGroup(DecisionLog& decisions, const std::atomic<bool>& stopping,
                           KeptPeers& peers, std::vector<Source> sources, ArrivalMachine machine)
    : decisions_(decisions),
      stopping_(stopping),
      peers_(peers),
      sources_(std::move(sources)),
      machine_(std::move(machine)) {}

ArrivalMachine::Time ArrivalGroup::now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

std::size_t ArrivalGroup::source_of(std::size_t program) const {
  for (std::size_t source = 0;; ++source) {
    if (program < sources_.at(source).programs) return source;
    program -= sources_[source].programs;
  }
}

void ArrivalGroup::need(const std::vector<Source>& sources, std::size_t program) {
  std::lock_guard lock(mutex);
  const auto is_same = [](const Source& a, const Source& b) {
    return a.host == b.host && a.programs == b.programs;
  };
  if (!std::equal(sources.begin(), sources.end(), sources_.begin(), sources_.end(), is_same)) {
    throw Failure("refused: this is no program of that group");
  }
  const std::size_t source = source_of(program);
  if (sources_[source].ferryd.address.empty()) sources_[source].ferryd = sources[source].ferryd;
}

void ArrivalGroup::join(Arrival& arrival) {
  std::lock_guard lock(mutex);
  if (!machine_.happened(arrival.index(), Event::kPrepared, now())) {
    throw Failure(decision().decided() ? failure()
                                       : "refused: this program of that group arrives already");
  }
  arrivals_.push_back(&arrival);
}

void ArrivalGroup::take_up(Arrival& arrival) {
  Lock lock(mutex);
  arrivals_.push_back(&arrival);
  advance(lock);
}

void ArrivalGroup::leave(Arrival& arrival) {
  std::lock_guard lock(mutex);
  std::erase(arrivals_, &arrival);
}

std::vector<Arrival*> ArrivalGroup::arrivals() const {
  std::lock_guard lock(mutex);
  return arrivals_;
}

bool ArrivalGroup::happened(std::size_t program, Event event) {
  const bool has_happened = machine_.happened(program, event, now());
  changed.notify_all();
  return has_happened;
}

// One record for all programs: it is never on the disk in part.
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

void ArrivalGroup::record(Lock& lock, ArrivalMachine::Step step) {
  const bool commits = step == ArrivalMachine::Step::kRecordCommit;
  lock.unlock();
  std::string error;
  const auto written = write(commits ? Decision::kCommitted : Decision::kAborted, &error);
  if (!commits && written != Written::kDurable) {
    log::error("what has arrived from {} stays frozen: {}", sources_.front().host, error);
  }
  lock.lock();
  if (written != Written::kDurable && failure_.empty()) failure_ = error;
  machine_.written(written, now());
  changed.notify_all();
}

// Carries out what is due for the arrivals, side by side. False: nothing is due.
bool ArrivalGroup::carry_out(Lock& lock) {
  std::vector<std::pair<Arrival*, Action>> due;
  for (Arrival* arrival : arrivals_) {
    const auto state = machine_.state(arrival->index());
    if (state != State::kConnecting && state != State::kUndoing) continue;
    const Action action = machine_.next(arrival->index());
    if (action != Action::kNone) due.emplace_back(arrival, action);
  }
  if (due.empty()) return false;
  const std::string reason = failure();
  changed.notify_all();
  lock.unlock();
  in_parallel(due, [&](const std::pair<Arrival*, Action>& one) {
    if (one.second == Action::kConnect) {
      one.first->connect();
    } else {
      one.first->undo(reason);
    }
  });
  lock.lock();
  for (const auto& [arrival, action] : due) {
    happened(arrival->index(), action == Action::kConnect ? Event::kConnected : Event::kUndone);
  }
  return true;
}

// Returns when nothing more is due or under way in any thread, or when this ferryd ends before the
// group is decided.
void ArrivalGroup::advance(Lock& lock) {
  for (;;) {
    if (const auto step = machine_.step(now()); step != ArrivalMachine::Step::kNone) {
      record(lock, step);
      continue;
    }
    if (carry_out(lock)) continue;
    if (machine_.rests() || (stopping_ && !decision().decided())) return;
    changed.wait_for(lock, kGlance);
  }
}

Answer ArrivalGroup::commit(std::size_t program, std::string* reason) {
  Lock lock(mutex);
  machine_.promised(source_of(program));
  advance(lock);
  const auto until = now() + kPromiseTime;
  while (decision().waits() && !stopping_ && now() < until) changed.wait_for(lock, kGlance);
  return answer_commit(lock, reason);
}

// A source that can be asked decides for itself: the operator speaks for those that are gone.
Answer ArrivalGroup::commit_by_operator(std::string* reason) {
  Lock lock(mutex);
  for (std::size_t source = 0; source < sources_.size() && decision().waits(); ++source) {
    if (decision().has_promised(source)) continue;
    const auto answer = ask_source(lock, source);
    if (answer != Answer::kUnknown || !decision().waits()) continue;
    throw Failure(fmt::format("{} is there, and has not decided yet; wait until it has",
                              sources_[source].host));
  }
  machine_.operator_commits();
  return answer_commit(lock, reason);
}

Answer ArrivalGroup::answer_commit(Lock& lock, std::string* reason) {
  advance(lock);
  if (!decision().committed()) {
    *reason = failure_.empty() ? "not all is here that was to go on" : failure_;
  }
  return decision().answer();
}

Answer ArrivalGroup::abort(const std::string& reason) {
  Lock lock(mutex);
  fail(reason);
  advance(lock);
  return decision().answer();
}

void ArrivalGroup::lost(const std::string& reason) {
  std::lock_guard lock(mutex);
  fail(reason);
}

// With the mutex.
void ArrivalGroup::fail(const std::string& reason) {
  if (machine_.failed() && failure_.empty()) failure_ = reason;
  changed.notify_all();
}

void ArrivalGroup::keep_house() {
  Lock lock(mutex);
  if (!arrivals_.empty()) {
    if (const auto source = machine_.asks_source(now())) ask_source(lock, *source);
  }
  // A step that another thread has begun is left to that thread.
  if (const auto step = machine_.step(now()); step != ArrivalMachine::Step::kNone) {
    record(lock, step);
  }
  carry_out(lock);
}

std::optional<Answer> ArrivalGroup::ask_source(Lock& lock, std::size_t source) {
  const PeerRecord ferryd = sources_.at(source).ferryd;
  const auto arrival = std::find_if(arrivals_.begin(), arrivals_.end(), [&](const Arrival* one) {
    return source_of(one->index()) == source;
  });
  std::optional<Answer> answer;
  // Else it has not begun, and there is nobody to ask.
  if (arrival != arrivals_.end()) {
    const auto move_id = (*arrival)->move_id();
    const std::string program = (*arrival)->program();
    lock.unlock();
    try {
      answer = ask_decision(peers_, ferryd.address, ferryd.name, move_id, kAnswerTime);
    } catch (const Failure& failure) {
      log::warn("'{}' waits for its source: {}", program, failure.what());
    }
    lock.lock();
  }
  machine_.source_answered(source, answer, now());
  const bool is_aborted = decision().decided() && !decision().committed();
  if (is_aborted && failure_.empty()) {
    failure_ = answer ? "the source gave up" : "there is no sign of its source";
  }
  return answer;
}

bool ArrivalGroup::wait_until_settled(Lock& lock, std::size_t program,
                                      std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    switch (state(program)) {
      case State::kHere:
      case State::kOver:
      case State::kUndoing:
      case State::kUndone: return true;
      case State::kHeld:
        if (std::chrono::steady_clock::now() > until) return false;
        break;
      default: break;
    }
    // A commit that is being recorded: only the next ferryd can tell whether it is on record. A
    // group whose commit is not being recorded is aborted now.
    if (stopping_ && decision().next() != DestinationDecision::Step::kNone) return true;
    changed.wait_for(lock, kGlance);
  }
}

bool ArrivalGroup::in_doubt() const {
  std::lock_guard lock(mutex);
  return machine_.in_doubt(now());
}

}  // namespace ferry::host
