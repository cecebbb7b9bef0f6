#include "transport/streams/error_state.h"

#include <limits>

namespace ferry::transport {

void ErrorState::fail(std::uint64_t failed, Status status) {
  QpAttributes& qp = sends_.qp;
  qp.qp_state = QpState::kError;
  if (flight_ != nullptr) flight_->give_up();
  sends_.flush(failed, status);

  receives_.message = RequestKind::kNone;
  if (responses_ != nullptr) responses_->enter_error();
  receives_.end_receive(Status::kFlush);
  qp.path.host.flush_receives();

  qp.migration.paused = qp.migration.resume_pending = false;
  qp.migration.due = 0;
  timers_.stop();
}

void ErrorState::flush_all() {
  fail(std::numeric_limits<std::uint64_t>::max(), Status::kFlush);
}

void ErrorState::settle() {
  if (sends_.settle()) return;
  const std::uint64_t oldest = sends_.queue.head();
  fail(oldest, sends_.queue.at(oldest).local_error);
}

}  // namespace ferry::transport
