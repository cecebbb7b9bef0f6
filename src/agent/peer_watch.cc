#include "agent/peer_watch.h"

#include <vector>

namespace ferry::agent {
namespace {

std::vector<device::QpStatus> all_qps(Registry& registry) {
  std::vector<device::QpStatus> all, some;
  registry.for_each([&](Registry::Entry& entry) {
    some.clear();
    entry.context->status(&some);
    all.insert(all.end(), some.begin(), some.end());
  });
  return all;
}

bool has_peer(const device::QpStatus& qp) {
  return qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD;
}

}  // namespace

void PeerWatch::stopped(Registry& registry) {
  *this = PeerWatch{};
  for (const device::QpStatus& qp : all_qps(registry)) {
    retransmitted_before_ += qp.retransmitted_packets;
    if (has_peer(qp)) waiting_.insert(qp.qpn);
  }
}

void PeerWatch::resumed(std::uint64_t move_id) {
  move_id_ = move_id;
  active_ = true;
}

bool PeerWatch::look(Registry& registry, PeersKnow* out) {
  *out = PeersKnow{};
  out->move_id = move_id_;
  // A QP that was destroyed or failed meanwhile has nobody to tell any more.
  std::set<std::uint32_t> still;
  std::uint64_t retransmitted = 0;
  for (const device::QpStatus& qp : all_qps(registry)) {
    retransmitted += qp.retransmitted_packets;
    if (qp.resume_pending && has_peer(qp) && waiting_.contains(qp.qpn)) still.insert(qp.qpn);
  }
  for (std::uint32_t qpn : waiting_) {
    if (!still.contains(qpn)) out->qpns.push_back(qpn);
  }
  waiting_ = std::move(still);
  out->remaining = static_cast<std::uint32_t>(waiting_.size());
  // QPs destroyed since the stop take their counts along.
  out->retransmitted_packets =
      retransmitted > retransmitted_before_ ? retransmitted - retransmitted_before_ : 0;

  const bool news = !told_ || !out->qpns.empty();
  told_ = true;
  if (!waiting_.empty()) return news;
  if (!all_know_) {
    all_know_ = true;
    all_know_since_ = Clock::now();
    return true;
  }
  if (Clock::now() - all_know_since_ < kSettle) return false;
  active_ = false;
  return true;
}

}  // namespace ferry::agent
