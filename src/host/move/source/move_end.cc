#include "host/move/source/move.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <thread>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/journal/decision_log.h"
#include "host/move/settle.h"
#include "host/move/source/bring_back.h"
#include "host/peers/this_host.h"
#include "host/proc/broken_dump.h"
#include "host/proc/process_tree.h"
#include "host/standin/stand_in_term.h"

// The part of Move after the decision: the program goes on where it was, or is followed to where it went.
namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPeersSettle{120};
constexpr seconds kEndLimit{10};       // for a killed process to be gone
constexpr seconds kTimelineLimit{10};  // for the destination's CRIU to end

}  // namespace

// The program was killed: a restart that follows at once needs its process ids.
void Move::await_end() const {
  const auto until = Clock::now() + kEndLimit;
  const auto parts = options_.cut->parts();
  for (const auto& [pid, started] : parts.at(index_).processes) {
    while (start_time(pid) == started && is_alive(pid) && Clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
}

void Move::roll_back() {
  if (unit_.needs_criu()) end_repair(unit_.root());  // somebody else may have killed CRIU
  tree_.roll_back();
  if (is_prepared_) tell_of_abort(peer_, move_id_, unit_);
  if (sender_) sender_->break_off();
  await_work();
  if (sending_.valid()) sending_.wait();
  ahead_.reset();
  rootfs_.reset();
  sender_.reset();
  if (leaving_.valid()) leaving_.wait();
  if (left_network_ || (is_prepared_ && !unit_.needs_criu())) {
    report_failure([&] { unit_.switch_network("activate"); });
  }
  if (is_prepared_) not_back_ = bring_back(unit_, tree_, host_.limits.restore, host_.stopping);
  const bool has_ended = is_cut() && options_.cut->ends_programs();
  if (has_ended) {
    await_end();
    // It goes on from its checkpoint at the same addresses, wherever that is: nothing may answer at them here.
    report_failure([&] { unit_.left(); });
  }
  std::unique_lock lock(mutex_);
  if (not_back_.empty() && !has_ended &&
      !changed_.wait_for(lock, seconds(10), [this] { return tree_.all_back(); })) {
    log::error("'{}' has not come back after its move failed", unit_.name());
    is_late_ = true;
  }
  resumed_ = Clock::now();
  outcome_ = {nullptr, tree_.timing().began, resumed_};
  lock.unlock();
  if (is_cut() && !has_ended) return;  // the images are to be stored yet
  std::error_code ignored;
  std::filesystem::remove_all(images_, ignored);
}

// Its runtime could not restore it. Somebody else may have it do so, as long as its checkpoint is of use. Or its
// processes have not come back yet: they are halted, or wait for their device.
void Move::await_return() {
  if (watcher_.joinable()) watcher_.join();
  watcher_ = std::thread([this, until = Clock::now() + host_.limits.checkpoint] {
    while (!tree_.all_back() && !host_.stopping && Clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(100));
    }
    if (!host_.stopping) group_->happened(index_, MoveMachine::Event::kReturned);
  });
}

void Move::need_restorable() const {
  need_restorable_here(group_->answer(), unit_.name(), peer_.name());
}

int Move::restored(pid_t pid) {
  tree_.restored(pid);
  return 0;
}

// CRIU has killed the tree; a process that is left of a killed CRIU's tree must not live twice.
void Move::kill_rest() {
  for (const auto& pidfd : pidfds_) {
    if (pidfd) ::pidfd_send_signal(pidfd.get(), SIGKILL, nullptr, 0);
  }
  pidfds_.clear();
}

std::optional<ResumeSlots> Move::wake(pid_t inner_pid) {
  return tree_.wake(inner_pid);
}

void Move::resumed(pid_t inner_pid, const agent::Resumed&) {
  tree_.resumed(inner_pid);
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool Move::is_over() const {
  return group_->is_over(index_);
}

// Listens to the destination from before the commit until no peer needs the stand-in.
void Move::watch() {
  const auto now = [] { return Clock::now().time_since_epoch(); };
  const auto most = now() + host_.limits.stand_in;
  const bool is_over_there = hear(
      peer_, move_id_, [this](const v1::WatchEvent& event) { handle(event); },
      [&] { return group_->answer() != Answer::kAborted && !host_.stopping && now() < most; });
  group_->wait_until_decided();
  if (!group_->committed()) return;  // the program is still here
  StandInTerm term(now(), host_.limits.stand_in);
  if (is_over_there) {
    term.program_left(now(), tree_.paused_limit());
    report_failure([&] { side_.decisions.note(Journal::left(move_id_, stamp_now())); });
  }
  while (!host_.stopping && !term.over(tree_.expired(), now())) {
    std::this_thread::sleep_for(milliseconds(100));
  }
  if (host_.stopping) return;     // the next ferryd goes on
  std::shared_ptr<void> network;  // released, if nobody else holds it, after the lock
  {
    std::lock_guard lock(mutex_);
    network.swap(network_);
  }
  group_->unneeded(index_);
}

void Move::handle(const v1::WatchEvent& event) {
  std::lock_guard lock(mutex_);
  last_news_ = Clock::now();
  if (event.has_resumed() && !is_resumed_) {
    resumed_ = last_news_;
    is_resumed_ = true;
    // The answer to the commit may still be on its way, or the thread that leaves.
    committed_at_ = group_->committed() ? std::min(group_->decided_at(), resumed_) : resumed_;
    rdma_ns_there_ = event.resumed().rdma_ns();
    for (const auto& program : event.resumed().inner_programs()) {
      inner_programs_.push_back({program.pid(), program.name(), program.stood_still_ms()});
    }
  } else if (event.has_peers_know()) {
    heard_peers_ = true;
    remaining_ = event.peers_know().remaining();
    retransmitted_ = event.peers_know().retransmitted_packets();
    for (const auto qpn : event.peers_know().qpns()) tree_.peer_knows(qpn);
  } else if (event.has_timeline()) {
    timeline_there_ = event.timeline().spans();
  } else if (!event.failed().empty()) {
    failed_there_ = event.failed();
  }
  changed_.notify_all();
}

void Move::finish() {
  std::unique_lock lock(mutex_);
  const bool resumed = changed_.wait_for(lock, host_.limits.resume,
                                         [this] { return is_resumed_ || !failed_there_.empty(); });
  std::error_code ignored;
  if (!resumed || !failed_there_.empty()) {
    lock.unlock();
    std::filesystem::remove_all(images_, ignored);
    throw Failure(fmt::format("'{}' is on {} now, but does not go on there: {}", unit_.name(),
                              peer_.name(), resumed ? failed_there_ : "no sign of it"));
  }
  if (tree_.timing().qps > 0) {
    const auto limit = Clock::now() + host_.limits.peers;
    const auto settled = [this] {
      return heard_peers_ && remaining_ == 0 && Clock::now() - last_news_ > kPeersSettle;
    };
    while (!settled() && Clock::now() < limit) changed_.wait_for(lock, milliseconds(10));
  }
  if (options_.timeline) {
    changed_.wait_for(lock, kTimelineLimit, [this] { return !timeline_there_.empty(); });
    tell_timeline();
  }
  outcome_ = {std::make_shared<v1::MoveReport>(report()), tree_.timing().began, resumed_};
  lock.unlock();
  std::filesystem::remove_all(images_, ignored);
}

}  // namespace ferry::host
