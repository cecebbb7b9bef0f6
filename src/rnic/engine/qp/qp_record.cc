#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/qp/records.h"
#include "rnic/engine/requests/work_requests.h"

// The QP's part of its record (docs/image.md), and its status.
namespace ferry::rnic {

void QueuePair::save(wire::ByteWriter& out) const {
  device::encode(attributes_, out);
  out.put(static_cast<std::uint8_t>(lane_ == nullptr ? kLanes : engine_.lanes().index_of(lane_)));
  if (is_datagram()) save_datagram(out);
  out.put(selected_srq_ != nullptr ? selected_srq_->number() : 0);
  save_receives(receives_, out);
  transport_->save(out);
  if (!is_paced()) return;
  out.put(pacer_.rate());
  out.put(pacer_.burst());
}

bool QueuePair::load(wire::ByteReader& in) {
  ibv_qp_attr attributes;
  if (!device::parse(in, &attributes)) return false;
  const auto lane = in.get<std::uint8_t>();
  attributes_ = attributes;
  if (is_datagram() && !load_datagram(in)) return false;
  const auto srqn = in.get<std::uint32_t>();
  if (!in.ok() || lane > kLanes || attributes.ah_attr.grh.sgid_index >= limits_.gid_count ||
      (srqn != 0 && (init_.xrcd == nullptr || engine_.objects().xrc_srq(srqn) == nullptr)) ||
      !load_receives(in, init_.cap.max_recv_wr, init_.cap.max_recv_sge, &receives_)) {
    return false;
  }
  if (srqn != 0) select_srq(srqn);
  if (lane < kLanes) set_lane(&engine_.lanes()[lane]);
  if (!transport_->load(in) || !in.ok()) return false;
  if (in.remaining() == 0) return true;
  const auto rate = in.get<std::uint32_t>();
  const auto burst = in.get<std::uint32_t>();
  if (rate == 0 || rate > Pacer::kMaxRate) return false;
  pacer_.set(rate, burst);
  return in.ok() && in.remaining() == 0;
}

device::QpStatus QueuePair::status() const {
  const transport::TransportStatus status = transport_->status();
  device::QpStatus out;
  out.qpn = status.virtual_qpn;
  out.wire_qpn = status.wire_qpn;
  out.peer_qpn = status.peer_qpn;
  out.peer_wire_qpn = status.peer_wire_qpn;
  out.type = static_cast<std::uint8_t>(init_.type);
  out.state = static_cast<std::uint8_t>(status.state);
  out.migration = static_cast<std::uint8_t>(status.migration);
  out.peer_class = static_cast<std::uint8_t>(status.peer_class);
  if (lane_ != nullptr && lane_->port != nullptr) out.local = lane_->port->local();
  out.peer = status.peer;
  out.epoch = status.epoch;
  out.next_psn = status.next_psn;
  out.first_unacked_psn = status.first_unacked_psn;
  out.expected_psn = status.expected_psn;
  out.resume_pending = status.resume_pending ? 1 : 0;
  if (turn == Turn::kResting) {  // what the QP will be once it is touched
    out.epoch += engine_.suspension().epochs_ahead();
    if (engine_.suspended())
      out.migration = static_cast<std::uint8_t>(transport::MigrationState::kStopped);
    if (engine_.suspension().resumes_resting()) out.resume_pending = 1;
  }
  const transport::Counters& counters = status.counters;
  out.sent_packets = counters.sent_packets;
  out.received_packets = counters.received_packets;
  out.sent_bytes = counters.sent_bytes;
  out.received_bytes = counters.received_bytes;
  out.retransmitted_packets = counters.retransmitted_packets;
  out.timeouts = counters.timeouts;
  out.rnr_naks = counters.rnr_naks_received;
  out.dropped = counters.dropped_forged;
  out.last_pause_ns = last_pause_ns_;
  const transport::PeerRetries& peer = status.peer_retries;
  out.peer_retries = {peer.timeout, peer.retry_count, peer.rnr_retry,
                      static_cast<std::uint8_t>(peer.known)};
  return out;
}

}  // namespace ferry::rnic
