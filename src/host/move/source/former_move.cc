#include "host/move/source/former_move.h"

#include <fmt/core.h>
#include <signal.h>

#include <cerrno>
#include <filesystem>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/control/control_server.h"
#include "host/journal/decision_log.h"
#include "host/move/settle.h"
#include "host/move/source/bring_back.h"
#include "host/move/source/departed.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/standin/slots.h"
#include "host/standin/stand_in_host.h"
#include "host/standin/stand_in_term.h"
#include "host/standin/whereabouts.h"
#include "host/units/units.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kPause{100};  // between looks and questions
constexpr std::chrono::seconds kCriuLimit{10};    // for CRIU to kill what has left
constexpr std::chrono::seconds kReopenEvery{1};   // between attempts to open sockets again
constexpr std::chrono::seconds kBetweenTries{1};  // to have a machine run again
constexpr std::chrono::seconds kWarnEvery{10};

std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

// Networks are gone with a reboot: nobody will ever reach a stand-in there again.
bool is_network_gone(const Held& held) {
  std::error_code ignored;
  return !held.netns.empty() && !std::filesystem::exists(held.netns, ignored);
}

}  // namespace

FormerMove::FormerMove(const SourceSide& side, std::uint64_t move_id, const Journal::Entry& entry,
                       std::unique_ptr<StoppedTree> tree)
    : side_(side),
      host_(side.host),
      move_id_(move_id),
      entry_(entry),
      held_(entry.held.value_or(Held{})),
      program_(entry.held ? held_.program : entry.record->program),
      unit_(side.units.known(held_.program, held_.instance)),
      tree_(tree ? std::move(tree)
                 : std::make_unique<StoppedTree>(side.control, side.stand_ins, move_id)),
      machine_(MoveMachine::recovered(entry.decision())) {
  // A tree that was given has its stand-ins already.
  if (tree_->sockets().empty()) tree_->recover(held_.processes, held_.netns);
  for (const auto& process : side.control.processes()) {
    if (tree_->has_process(process.pid)) {
      tree_->resumed(innermost_pid(process.pid).value_or(process.pid));
    }
  }
  thread_ = std::thread([this] { run(); });
}

FormerMove::~FormerMove() {
  if (thread_.joinable()) thread_.join();
}

// Waits a moment. False when this ferryd ends.
bool FormerMove::pause() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPause);
  return !host_.stopping;
}

// The same for longer, after what has failed.
bool FormerMove::rest() {
  for (const auto until = now() + kBetweenTries; now() < until;) {
    if (!pause()) return false;
  }
  return true;
}

void FormerMove::run() {
  try {
    Lock lock(mutex_);
    while (!host_.stopping && go_on(lock)) {
    }
    lock.unlock();
    if (!host_.stopping) finish();
  } catch (const std::exception& failure) {
    log::error("what is left of the move of '{}': {}", program_, failure.what());
  }
}

// Carries out the next step or action of the machine; without the lock while that takes time.
// False: there is nothing more to do.
bool FormerMove::go_on(Lock& lock) {
  using Event = MoveMachine::Event;
  if (const auto step = machine_.step(now()); step != MoveMachine::Step::kNone) {
    decide(lock, step);
    return true;
  }
  const auto carry_out = [&](auto action, Event event) {
    lock.unlock();
    action();
    lock.lock();
    if (!host_.stopping) machine_.happened(0, event);
    return true;
  };
  switch (machine_.next(0, now())) {
    case MoveMachine::Action::kLeave: return carry_out([this] { depart(); }, Event::kLeft);
    case MoveMachine::Action::kFollow: return carry_out([this] { follow(); }, Event::kUnneeded);
    case MoveMachine::Action::kReturn: return carry_out([this] { roll_back(); }, Event::kReturned);
    default: break;
  }
  const auto state = machine_.state(0);
  if (state == MoveMachine::State::kOver || state == MoveMachine::State::kBack) return false;
  changed_.wait_for(lock, kPause);  // before the destination is asked again
  return true;
}

void FormerMove::decide(Lock& lock, MoveMachine::Step step) {
  if (step == MoveMachine::Step::kAskCommit) return ask(lock);
  // Under the lock: a thread that waits for the decision hears it when it is on record.
  const auto outcome = machine_.decision().committed() ? Decision::kConfirmed : Decision::kAborted;
  report_failure([&] {
    side_.decisions.record(Side::kSource, {outcome, program_, "", entry_.record->moves});
  });
}

void FormerMove::ask(Lock& lock) {
  const std::string peer = entry_.record->peer;
  std::string reason, refusal;
  Answer answer = Answer::kUnknown;
  lock.unlock();
  try {
    Peer destination = Peer::recorded(peer, host_.credentials);
    answer = ask_to_commit(destination, move_id_, &reason);
    const auto [address, name] = parse_peer(peer);
    if (answer == Answer::kAborted) refusal = (name.empty() ? address : name) + ": " + reason;
  } catch (const Failure& failure) {
    reason = failure.what();
  }
  lock.lock();
  machine_.answered(answer, now());
  in_doubt_ = !machine_.decision().decided();
  refusal_ = refusal;
  changed_.notify_all();
  const auto time = std::chrono::steady_clock::now();
  if (!in_doubt_ || time - warned_ < kWarnEvery) return;
  warned_ = time;
  log::warn("'{}' stays frozen until {} says how its move was decided: {}", program_, peer, reason);
}

// Those of the program's future peers that ask here are told the way too, as long as it lives
// anywhere.
void FormerMove::depart() {
  const std::string to = entry_.going ? entry_.going->host : std::string();
  side_.accounts.ended(Side::kSource, move_id_, {MoveOutcome::kMoved, {}, {}, to, {}, nullptr});
  report_failure([&] { unit_->correct(Unit::State::kRunning, Unit::State::kMoved, 0, to); });
  network_ = side_.departed.hold_network(held_.instance);
  if (!entry_.since) {
    report_failure([&] { side_.decisions.note(Journal::since(move_id_, stamp_now())); });
  }
  report_failure([&] { unit_->left(); });
  std::vector<Place> next;
  for (const auto& [origin, place] : entry_.origins) next.push_back(place);
  std::vector<pid_t> pids;
  for (const auto& process : held_.processes) pids.push_back(process.pid);
  side_.whereabouts.left(pids, next);
}

// Until no peer needs the stand-ins any more.
void FormerMove::follow() {
  const Stamp stamp = stamp_now();
  const auto began = now();
  const auto committed =
      began - (entry_.since ? age_of(*entry_.since, stamp) : std::chrono::nanoseconds(0));
  StandInTerm term(committed, host_.limits.stand_in);
  if (entry_.left) term.program_left(began - age_of(*entry_.left, stamp), tree_->paused_limit());
  open_stand_ins(committed);
  await_take(term);
  hear_of_program(&term);
  for (auto opened = now(); is_needed(term); pause()) {
    if (now() - opened < kReopenEvery) continue;
    opened = now();
    open_stand_ins(committed);
  }
  end_tree(began + kCriuLimit);
}

bool FormerMove::is_needed(const StandInTerm& term) const {
  // Of a move of a former version the journal knows only that it is decided.
  const bool expired = entry_.held && tree_->expired();
  return !host_.stopping && !is_network_gone(held_) && !term.over(expired, now());
}

// Sockets that cannot be opened now may be later, e.g. when a host that has just booted has got its
// address.
void FormerMove::open_stand_ins(std::chrono::nanoseconds committed) {
  const std::string problem = tree_->reopen();
  if (!problem.empty() && !has_complained_) {
    log::warn("peers of '{}' that have not heard of its move cannot be told: {}", program_,
              is_network_gone(held_) ? "its network is gone" : problem);
    has_complained_ = true;
  }
  if (!entry_.going) return;
  Place there;
  there.host = entry_.going->host;
  there.ferryd = parse_peer(held_.peer).address;
  for (const auto& gone : tree_->commit(entry_.going->places, there, now() - committed)) {
    // The RNIC may have moved on since.
    const auto place = entry_.origins.find(gone.place.origin);
    if (gone.stand_in == 0 || place == entry_.origins.end()) continue;
    side_.stand_ins.committed(gone.stand_in, place->second.location,
                              port::slot_of_udp_port(place->second.location.udp_port),
                              place->second.epoch);
    side_.departed.keep_origin(move_id_, gone.stand_in, place->second, network_);
    kept_.insert(place->first);
  }
}

// The ferryd that restored a checkpoint may not have got this keeper's answer to Take, and asks
// again then: until that is settled it has no news.
void FormerMove::await_take(const StandInTerm& term) {
  if (!entry_.kept || !entry_.going || entry_.going->host == host_.name || entry_.left) return;
  Peer destination = Peer::recorded(held_.peer, host_.credentials);
  std::string reason;
  while (!host_.stopping && !term.over(false, now()) &&
         ask_to_commit(destination, move_id_, &reason) == Answer::kUnknown) {
    pause();
  }
}

// Hears from the destination which peers know the way, until it has told all.
void FormerMove::hear_of_program(StandInTerm* term) {
  const auto needed = [&] { return is_needed(*term); };
  if (entry_.left || held_.peer.empty() || !needed()) return;
  const auto handle = [&](const v1::WatchEvent& event) {
    for (const auto qpn : event.peers_know().qpns()) tree_->peer_knows(qpn);
  };
  Peer destination = Peer::recorded(held_.peer, host_.credentials);
  if (!hear(destination, move_id_, handle, needed)) return;
  report_failure([&] { side_.decisions.note(Journal::left(move_id_, stamp_now())); });
  term->program_left(now(), tree_->paused_limit());
}

// CRIU has killed the tree, unless it was killed itself before.
void FormerMove::end_tree(std::chrono::nanoseconds limit) {
  while (!host_.stopping && now() < limit && !tree_->all_gone()) pause();
  for (const auto& process : held_.processes) {
    if (start_time(process.pid) == process.started) ::kill(process.pid, SIGKILL);
  }
  if (root() != 0 && start_time(root()) == held_.started) ::kill(root(), SIGKILL);
}

// For the history, of a move whose program goes on here.
MoveEnd FormerMove::failed_end() const {
  std::lock_guard lock(mutex_);
  MoveEnd end;
  end.outcome = is_resolved_ ? MoveOutcome::kAborted : MoveOutcome::kFailed;
  if (entry_.decision() == Decision::kCommitted) end.step = "commit";  // it was promised
  end.reason = is_resolved_ ? kOperatorDecided : kFerrydEnded;
  if (!is_resolved_ && !refusal_.empty()) end.reason += "; " + refusal_;
  if (entry_.going) end.to = entry_.going->host;
  return end;
}

// A virtual machine stands still until that is done.
void FormerMove::join_network() {
  bool is_done = false;
  do {
    report_failure([&] {
      unit_->switch_network("activate");
      is_done = true;
    });
  } while (!is_done && !unit_->needs_criu() && start_time(root()) == held_.started && rest());
}

void FormerMove::roll_back() {
  tree_->roll_back();
  if (unit_->is_checkpointed()) return bring_back();
  side_.accounts.ended(Side::kSource, move_id_, failed_end());
  report_failure([&] { unit_->correct(Unit::State::kMoved, Unit::State::kRunning, root(), {}); });
  if (!is_network_gone(held_) && start_time(root()) == held_.started) join_network();
  while (!host_.stopping && !tree_->all_gone()) {
    tree_->reopen();
    pause();
  }
}

// Its runtime has ended the program, or is about to: it is asked to restore it. When the runtime
// cannot, somebody else may have it do so, as long as the checkpoint is of use.
void FormerMove::bring_back() {
  if (!held_.peer.empty()) {
    Peer destination = Peer::recorded(held_.peer, host_.credentials);
    tell_of_abort(destination, move_id_, *unit_);
  }
  const std::string error = host::bring_back(*unit_, *tree_, host_.limits.restore, host_.stopping);
  if (host_.stopping) return;
  MoveEnd end = failed_end();
  if (!error.empty()) {
    end.outcome = MoveOutcome::kLost;
    end.reason += "; and it does not go on here: " + error;
  }
  side_.accounts.ended(Side::kSource, move_id_, end);
  if (error.empty()) {
    log::info("'{}' was being moved by a former ferryd, and goes on here", program_);
  } else {
    log::error("'{}', which a former ferryd was moving, does not go on here: {}", program_, error);
  }
  const auto until = now() + host_.limits.checkpoint;
  while (!host_.stopping && now() < until) {
    if (error.empty() ? tree_->all_gone() : tree_->all_back()) return;
    pause();
  }
}

void FormerMove::need_restorable() const {
  need_restorable_here(answer(), program_, parse_peer(held_.peer).name);
}

int FormerMove::restored(pid_t pid) {
  tree_->restored(pid);
  return 0;
}

void FormerMove::finish() {
  for (const auto& [origin, place] : entry_.origins) {
    if (!kept_.contains(origin)) side_.decisions.freed(move_id_, origin);
  }
  side_.decisions.over(move_id_, Side::kSource);
  network_.reset();  // goes when nobody needs it
  std::lock_guard lock(mutex_);
  over_ = true;
}

int FormerMove::action(const std::string& name, pid_t) {
  if (name == "network-unlock") {
    try {
      unit_->switch_network("activate");
    } catch (const Failure& failure) {
      log::error("{}", failure.what());
      return 1;
    }
  }
  if (name != "post-dump") return 0;
  std::unique_lock lock(mutex_);
  const auto& decision = machine_.decision();
  while (!decision.decided() && !host_.stopping) changed_.wait_for(lock, kPause);
  if (!decision.decided()) return EAGAIN;
  return decision.committed() ? 0 : 1;
}

Answer FormerMove::answer() const {
  std::lock_guard lock(mutex_);
  return machine_.decision().answer();
}

bool FormerMove::in_doubt() const {
  std::lock_guard lock(mutex_);
  return in_doubt_ && !machine_.decision().decided();
}

void FormerMove::resolve_abort() {
  std::lock_guard lock(mutex_);
  is_resolved_ = !machine_.decision().decided();
  machine_.operator_aborts();
  changed_.notify_all();
}

bool FormerMove::is_over() const {
  std::lock_guard lock(mutex_);
  return over_;
}

bool FormerMove::is_coming_back() const {
  std::lock_guard lock(mutex_);
  return !over_ && machine_.decision().decided() && !machine_.decision().committed();
}

}  // namespace ferry::host
