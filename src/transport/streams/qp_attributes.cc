#include "transport/streams/qp_attributes.h"

#include <algorithm>
#include <iterator>

#include "transport/send_queue.h"
#include "wire/psn.h"

namespace ferry::transport {
namespace {

wire::Service service_of_type(ConnectionType type) {
  switch (type) {
    case ConnectionType::kRc: return wire::Service::kRc;
    case ConnectionType::kUc: return wire::Service::kUc;
    default: return wire::Service::kXrc;
  }
}

bool is_mtu(std::uint32_t mtu) {
  return mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0;
}

template <typename Archive, typename T>
void visit_attributes(Archive& a, T& qp) {
  a.value(qp.qp_state, QpState::kError);
  a.value(qp.rtr.peer);
  a.value(qp.rtr.peer_qpn, wire::kPsnMask);
  a.value(qp.rtr.peer_wire_qpn, wire::kPsnMask);
  a.value(qp.rtr.mtu);
  a.value(qp.rtr.expected_psn);
  a.value(qp.rtr.max_dest_rd_atomic);
  a.value(qp.rtr.min_rnr_timer, std::uint8_t{31});
  a.value(qp.rts.next_psn);
  a.value(qp.rts.timeout, std::uint8_t{31});
  a.value(qp.rts.retry_count, std::uint8_t{7});
  a.value(qp.rts.rnr_retry, std::uint8_t{7});
  a.value(qp.rts.max_rd_atomic);
  a.value(qp.path.peer);
  a.value(qp.path.peer_wire_qpn, wire::kPsnMask);
  auto& c = qp.path.counters;
  for (auto* counter : {&c.sent_packets, &c.received_packets, &c.sent_bytes, &c.received_bytes,
                        &c.retransmitted_packets, &c.duplicate_packets, &c.out_of_sequence,
                        &c.rnr_naks_sent, &c.rnr_naks_received, &c.timeouts, &c.dropped_forged}) {
    a.value(*counter);
  }
}

}  // namespace

QpAttributes::QpAttributes(Host& host, const QueueLimits& limits_,
                           const MigrationSettings& settings_, std::uint32_t virtual_qpn_,
                           std::uint32_t wire_qpn_)
    : limits(limits_),
      settings(settings_),
      virtual_qpn(virtual_qpn_),
      wire_qpn(wire_qpn_),
      path(host, service_of_type(limits_.type)) {}

PeerRetries QpAttributes::peer_retries() const {
  if (agreed.known) return agreed;
  const bool requester = requesting() && limits.type != ConnectionType::kXrcTarget;
  if (!requester) return {};  // our QP has none itself: the defaults are what most programs use
  return {rts.timeout, rts.retry_count, rts.rnr_retry, false};
}

bool QpAttributes::acceptable(const SendRequest& request) const {
  if (limits.type == ConnectionType::kXrcTarget || request.length > kMaxMessage) return false;
  if (is_uc()) {
    constexpr Operation kOperations[] = {Operation::kSend,       Operation::kSendImm,
                                         Operation::kWrite,      Operation::kWriteImm,
                                         Operation::kBindWindow, Operation::kLocalInvalidate};
    if (std::count(std::begin(kOperations), std::end(kOperations), request.operation) == 0) {
      return false;
    }
  }
  switch (request.operation) {
    case Operation::kLocalInvalidate: return true;
    case Operation::kBindWindow: return request.binding != nullptr;
    case Operation::kFlush: return rts.max_rd_atomic > 0;
    case Operation::kRead:
      if (request.inline_data || rts.max_rd_atomic == 0) return false;
      break;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      if (request.inline_data || rts.max_rd_atomic == 0 || request.length < kAtomicBytes) {
        return false;
      }
      break;
    case Operation::kAtomicWrite:
      if (rts.max_rd_atomic == 0 || request.length != kAtomicBytes) return false;
      break;
    default: break;
  }
  return request.inline_data ? request.length <= limits.max_inline
                             : request.sge_count <= limits.max_send_sge;
}

void QpAttributes::count_unanswered() {
  if (settings.enabled && ++path.unanswered > settings.seek_after) path.host.seek(rtr.peer);
}

void QpAttributes::save(Saver& out) const {
  visit_attributes(out, *this);
}

void QpAttributes::load(Loader& in) {
  visit_attributes(in, *this);
  in.require(!receiving() || is_mtu(rtr.mtu));
  if (!is_mtu(rtr.mtu)) rtr.mtu = RtrAttributes().mtu;
}

}  // namespace ferry::transport
