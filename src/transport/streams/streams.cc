#include "transport/streams/streams.h"

#include "transport/streams/completer.h"
#include "wire/psn.h"

namespace ferry::transport {

void Streams::cancel_requests() {
  if (flight_ != nullptr) {
    flight_->cancel();
  } else if (sends_.qp.requesting()) {
    sends_.rewind();
  }
}

void Streams::restore_retries() {
  if (flight_ != nullptr) flight_->retries_left = sends_.qp.rts.retry_count;
}

// UC goes back to the beginning of the message.
void Streams::go_back_to_peer(std::uint32_t expected_psn, Time now) {
  cancel_requests();
  if (flight_ != nullptr) Completer(*flight_, *errors_).go_back_to_peer(expected_psn, now);
}

bool Streams::possible(const wire::MigrationMessage& message) const {
  if (flight_ == nullptr) return true;
  if (sends_.qp.requesting()) {
    const std::uint64_t expected = flight_->extend(message.expected_psn);
    if (expected < sends_.una || expected > sends_.max_sent) return false;
  }
  // A peer in RTR has no PSNs of its own yet; in that case we have received no requests.
  return !receives_.requests_received ||
         wire::psn_diff(receives_.expected_psn, message.first_unacked_psn) >= 0;
}

void Streams::forget_responses() {
  if (responses_ != nullptr) responses_->forget();
}

void Streams::acknowledge_again() {
  if (responses_ != nullptr) responses_->ack_due = receives_.requests_received;
}

}  // namespace ferry::transport
