#include "rnic/engine/held_ports.h"

#include <algorithm>
#include <vector>

#include "rnic/engine/qp/queue_pair.h"

namespace ferry::rnic {
namespace {

// The shortest time between two looks whether the ports are needed; the longest while they are; the
// time between two tries to get a port that others hold, if nobody tells when they free it.
constexpr transport::Time kShortestInterval = std::chrono::milliseconds(50);
constexpr transport::Time kLongestInterval = std::chrono::seconds(1);
constexpr transport::Time kTryInterval = std::chrono::milliseconds(250);

}  // namespace

void HeldPorts::meets_stranger(const Lane& lane, transport::Time now) {
  if (lane.port == nullptr || lane.slot == 0) return;
  look_at_ = std::min(look_at_, std::max(now, looked_at_ + kShortestInterval));
}

void HeldPorts::let_go() {
  holder_.let_go();
  awaits_ = false;
  look_at_ = transport::kNever;
  looked_at_ = kNotYet;
}

void HeldPorts::look_whether_freed(transport::Time now) {
  if (holder_.port_was_freed()) look_at_ = now;
}

// Looks which ports are needed. A peer of unknown class counts as a stranger; its class is soon
// known, and the next look heeds it.
void HeldPorts::look(transport::Time now) {
  looked_at_ = now;
  look_at_ = transport::kNever;
  std::vector<port::Address> wanted;
  for (const Lane& lane : lanes_) {
    if (lane.port == nullptr || lane.slot == 0) continue;
    const auto& qps = qps_.all();
    const bool strangers = std::any_of(qps.begin(), qps.end(), [&lane](const QueuePair* qp) {
      return qp->serves(lane) && qp->hears_strangers();
    });
    if (strangers) wanted.push_back(lane.port->local().address);
  }
  const auto sockets = [this] {
    return std::pair(holder_.ports().size(), holder_.watch_descriptor());
  };
  const auto before = sockets();
  const bool holds_all = holder_.hold(wanted);
  if (sockets() != before) thread_.sockets_changed();
  awaits_ = holder_.watch_descriptor() >= 0;
  if (wanted.empty()) return;
  look_at_ = now + (holds_all || awaits() ? kLongestInterval : kTryInterval);
}

}  // namespace ferry::rnic
