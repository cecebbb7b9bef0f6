#include "agent/peer_watch.h"

#include <algorithm>
#include <iterator>

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
    if (has_peer(qp)) waiting_.push_back(qp.qpn);
  }
  std::sort(waiting_.begin(), waiting_.end());
}

void PeerWatch::resumed(std::uint64_t move_id) {
  move_id_ = move_id;
  active_ = true;
}

bool PeerWatch::look(Registry& registry, PeersKnow* out) {
  const auto began = Clock::now();
  *out = PeersKnow{};
  out->move_id = move_id_;
  // A QP that was destroyed or failed meanwhile has nobody to tell any more.
  std::vector<std::uint32_t> still;
  std::uint64_t retransmitted = 0;
  const std::vector<device::QpStatus> qps = all_qps(registry);
  interval_ = std::max(kInterval, std::chrono::duration_cast<std::chrono::milliseconds>(
                                      kLookShare * (Clock::now() - began)));
  for (const device::QpStatus& qp : qps) {
    retransmitted += qp.retransmitted_packets;
    if (qp.resume_pending && has_peer(qp) &&
        std::binary_search(waiting_.begin(), waiting_.end(), qp.qpn)) {
      still.push_back(qp.qpn);
    }
  }
  std::sort(still.begin(), still.end());
  std::set_difference(waiting_.begin(), waiting_.end(), still.begin(), still.end(),
                      std::back_inserter(out->qpns));
  waiting_ = std::move(still);
  out->remaining = static_cast<std::uint32_t>(waiting_.size());
  // The counts of QPs that were destroyed since the stop are gone with them.
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
