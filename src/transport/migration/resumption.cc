#include "transport/migration/resumption.h"

#include "transport/stopped.h"

namespace ferry::transport {

void Resumption::announce(Time now) {
  qp_.migration.resume_pending = true;
  epochs_.located = false;
  repeat_from_now(now);
  timers_.limit_at = now + qp_.settings.paused_limit;
}

void Resumption::repeat_from_now(Time now) {
  qp_.migration.due |= kDueResume;
  timers_.resume.start(now, qp_.settings.resume_first);
  timers_.resume.again(now, qp_.settings.resume_last);
}

void Resumption::timeout(Time now) {
  if (timers_.resume.at > now) return;
  qp_.migration.due |= kDueResume;
  qp_.count_unanswered();
  timers_.resume.again(now, qp_.settings.resume_last);
}

bool Resumption::handle_resume(const wire::MigrationMessage& message, Time now) {
  if (!is_current(message, own_end_.description())) return false;
  if (message.epoch == epochs_.peer && epochs_.peer_resumed) {
    qp_.migration.due |= kDueResumeAck;  // our RESUME_ACK was lost
    streams_.restore_retries();          // the peer could not answer before
    return true;
  }
  if (!streams_.possible(message)) return false;
  epochs_.peer = message.epoch;
  epochs_.peer_resumed = true;
  qp_.migration.paused = false;
  timers_.probe.stop();
  if (qp_.migration.resume_pending) {
    qp_.migration.due |= kDueResume;  // both have moved: the peer hears it at its new place
  } else {
    timers_.limit_at = kNever;
  }

  streams_.cancel_requests();  // before `peer` changes: the flight is accounted to the old place
  qp_.path.peer = message.location;
  qp_.path.peer_wire_qpn = message.wire_qpn;
  epochs_.located = true;
  streams_.forget_responses();
  qp_.migration.due |= kDueResumeAck;
  streams_.go_back_to_peer(message.expected_psn, now);
  return true;
}

bool Resumption::handle_resume_ack(const wire::MigrationMessage& message, Time now) {
  if (!qp_.migration.resume_pending || message.epoch != epochs_.own ||
      !streams_.possible(message)) {
    return false;
  }
  // If the peer has moved as well, and we have not heard its own RESUME yet, its answer to ours
  // says where it is.
  if (!epochs_.located) {
    qp_.path.peer = message.location;
    qp_.path.peer_wire_qpn = message.wire_qpn;
  }
  qp_.migration.resume_pending = false;
  timers_.resume.stop();
  qp_.migration.due &= ~kDueResume;
  if (qp_.migration.paused) {
    timers_.probe.start(now + qp_.settings.probe_first, qp_.settings.probe_first);
  } else {
    timers_.limit_at = kNever;
  }
  streams_.go_back_to_peer(message.expected_psn, now);
  return true;
}

}  // namespace ferry::transport
