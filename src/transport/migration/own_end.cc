#include "transport/migration/own_end.h"

#include "transport/peer_retries.h"
#include "wire/psn.h"

namespace ferry::transport {

using wire::MigrationType;

StoppedEnd OwnEnd::description() const {
  const StoppedTreatment treatment = treatment_of(qp_.peer_retries());
  return {.virtual_qpn = qp_.virtual_qpn,
          .wire_qpn = qp_.wire_qpn,
          .peer = qp_.path.transport_port(),
          .peer_qpn = qp_.rtr.peer_qpn,
          .peer_wire_qpn = qp_.path.peer_wire_qpn,
          .peer_class = qp_.path.peer_class,
          .cookie = handshake_.cookies().own,
          .peer_cookie = handshake_.cookies().peer,
          .epoch = epochs_.own,
          .peer_epoch = epochs_.peer,
          .peer_resumed = epochs_.peer_resumed,
          .expected_psn = receives_.expected_psn,
          .next_psn = static_cast<std::uint32_t>(sends_.max_sent & wire::kPsnMask),
          .msn = receives_.msn,
          .paused_limit = qp_.settings.paused_limit,
          .gets_rnr_naks = treatment.answers,
          .rnr_timer = treatment.rnr_timer};
}

wire::MigrationMessage OwnEnd::message(MigrationType type) const {
  wire::MigrationMessage result;
  result.type = type;
  switch (type) {
    case MigrationType::kHello:
    case MigrationType::kHelloDone:
      result.cookie = handshake_.cookies().own;
      result.echo = handshake_.cookies().peer;
      break;
    case MigrationType::kHelloAck:
      result.cookie = handshake_.cookies().own;
      result.echo = handshake_.echo();
      break;
    case MigrationType::kResume:
    case MigrationType::kResumeAck:
      // RESUME_ACK names the epoch that it acknowledges.
      result.epoch = type == MigrationType::kResume ? epochs_.own : epochs_.peer;
      result.wire_qpn = qp_.wire_qpn;
      result.first_unacked_psn = static_cast<std::uint32_t>(sends_.una & wire::kPsnMask);
      result.expected_psn = receives_.expected_psn;
      if (DatagramSource us; qp_.path.host.place_towards(qp_.path.peer.address, &us)) {
        result.location = us.place.endpoint;
      }
      break;
    default: result.epoch = epochs_.own;
  }
  return result;
}

}  // namespace ferry::transport
