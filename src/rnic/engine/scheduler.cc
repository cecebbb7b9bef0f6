#include "rnic/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace ferry::rnic {
namespace {

constexpr unsigned kPacketsPerTurn = 16;  // how many one QP sends before the next one's turn
constexpr unsigned kWaitingPerPass = 16;  // how many QPs that wait for room are tried per pass

}  // namespace

void Scheduler::remove(QueuePair* qp) {
  touched_.remove(qp);
  if (waiting_.remove(qp)) --waiting_count_;
}

QueuePair* Scheduler::pop_touched() {
  QueuePair* qp = touched_.pop();
  if (qp != nullptr) qp->turn = Turn::kNone;
  return qp;
}

void Scheduler::push_waiting(QueuePair* qp) {
  if (qp->waiting) return;
  qp->waiting = true;
  waiting_.push(qp);
  ++waiting_count_;
}

QueuePair* Scheduler::pop_waiting() {
  QueuePair* qp = waiting_.pop();
  if (qp == nullptr) return nullptr;
  --waiting_count_;
  qp->waiting = false;
  return qp;
}

bool Scheduler::serve(QueuePair* qp, transport::Time now) {
  transport::Transport& transport = qp->transport();
  const unsigned sent = transport.transmit(now, kPacketsPerTurn);
  if (transport.has_work()) {
    if (sent > 0) {
      touch(qp);
    } else {
      push_waiting(qp);
    }
  } else if (transport.waits_for_window()) {
    push_waiting(qp);
  }
  timers_.schedule(qp);
  return sent > 0;
}

void Scheduler::flush() {
  port_full_ = false;
  for (Lane& lane : lanes_) {
    if (lane.port != nullptr && lane.users > 0 && !lane.port->flush()) port_full_ = true;
  }
}

void Scheduler::transmit(transport::Time now, bool hold) {
  QueuePair* held = nullptr;
  held_.transmission_begins();
  bool progress = true;
  while (progress) {
    progress = false;
    while (QueuePair* qp = pop_touched()) {
      if (held_.hold(qp, hold, now)) {
        qp->next_touched = std::exchange(held, qp);
      } else {
        progress |= serve(qp, now);
      }
    }
    for (unsigned tries = std::min(waiting_count_, kWaitingPerPass); tries > 0; --tries) {
      progress |= serve(pop_waiting(), now);
    }
    flush();
  }
  while (held != nullptr) touch(std::exchange(held, held->next_touched));
}

}  // namespace ferry::rnic
