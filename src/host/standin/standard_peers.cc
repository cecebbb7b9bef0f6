#include "host/standin/standard_peers.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/net.h"
#include "device/parcel.h"
#include "port/address_text.h"
#include "transport/peer_retries.h"
#include "transport/timers.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

// Generous times of moves on a busy machine of two processors (docs/bench.md).
constexpr milliseconds kBase{500}, kSilence{300};
constexpr std::uint64_t kBytesPerMillisecond = 128 * 1024;

// A UD QP has no peer: QPs that talk with it learn its place by asking.
bool is_connected(const device::QpStatus& qp) {
  if (qp.type == IBV_QPT_UD) return false;
  return qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD;
}

// Whether the peer sends requests, which it repeats until they are acknowledged.
bool answers_requests(const device::QpStatus& qp) {
  return qp.type == IBV_QPT_RC || qp.type == IBV_QPT_XRC_RECV;
}

bool has_class(const device::QpStatus& qp, transport::PeerClass peer_class) {
  return static_cast<transport::PeerClass>(qp.peer_class) == peer_class;
}

milliseconds in_ms(transport::Time time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

// Says that the QP's peer gives up too early, and why; empty: the peer waits for long enough.
std::string complaint(const device::QpStatus& qp, const Waiting& expected) {
  const transport::PeerRetries peer{qp.peer_retries.timeout, qp.peer_retries.retry_count,
                                    qp.peer_retries.rnr_retry, qp.peer_retries.known != 0};
  const auto treatment = transport::treatment_of(peer);
  const auto silent = transport::patience_in_silence(peer);
  const bool short_of_blackout = treatment.patience < expected.blackout;
  if (!short_of_blackout && silent >= expected.silence) return {};
  const bool counts_rnr = short_of_blackout && treatment.answers;
  const auto why =
      counts_rnr
          ? fmt::format("rnr_retry {} x {} ms", peer.rnr_retry,
                        in_ms(transport::rnr_delay(treatment.rnr_timer)).count())
          : fmt::format("timeout {} ms x (retry_cnt {} + 1)",
                        in_ms(transport::ack_timeout(peer.timeout)).count(), peer.retry_count);
  const auto patience = short_of_blackout ? treatment.patience : silent;
  return fmt::format(
      "{} speaks no migration messages and gives up after {} ms ({}, {}), and the move may {} for "
      "{} ms; give its QP more, or move with --force",
      peer_text(qp), in_ms(patience).count(), why,
      peer.known ? "agreed on over rdma_cm" : "assumed to be those of this program",
      short_of_blackout ? "keep it waiting" : "leave it without an answer",
      (short_of_blackout ? expected.blackout : expected.silence).count());
}

}  // namespace

Peers peers_of(const std::vector<agent::ContextStatus>& contexts) {
  Peers peers;
  for (const auto& context : contexts) {
    if (!device::device_behind(context.place).empty()) continue;  // its peers are told by letters
    for (const auto& qp : context.qps) {
      if (!is_connected(qp) || has_class(qp, transport::PeerClass::kFerry)) continue;
      (has_class(qp, transport::PeerClass::kUnknown) ? peers.undecided : peers.standard)
          .push_back(qp);
    }
  }
  return peers;
}

Waiting expected_waiting(std::uint64_t resident_bytes) {
  return {kBase + milliseconds(resident_bytes / kBytesPerMillisecond), kSilence};
}

std::string impatient(const std::vector<device::QpStatus>& standard, const Waiting& expected) {
  for (const auto& qp : standard) {
    if (!answers_requests(qp)) continue;
    if (auto line = complaint(qp, expected); !line.empty()) return line;
  }
  return {};
}

std::string peer_text(const device::QpStatus& qp) {
  return fmt::format("peer {} of QP {:#08x}", to_string(qp.peer.address), qp.qpn);
}

std::vector<ContextSlots> places_to_keep(const std::vector<agent::ContextStatus>& contexts) {
  std::vector<ContextSlots> kept;
  for (const auto& context : contexts) {
    ContextSlots slots{context.netdev, {}};
    std::vector<rnic::Slot> places;
    rnic::to_slots(context.place, &places);
    for (const auto& place : places) {
      if (std::any_of(context.qps.begin(), context.qps.end(), [&](const device::QpStatus& qp) {
            return is_connected(qp) && !has_class(qp, transport::PeerClass::kFerry) &&
                   qp.local == place.local;
          })) {
        slots.slots.push_back(place);
      }
    }
    if (!slots.slots.empty()) kept.push_back(std::move(slots));
  }
  return kept;
}

}  // namespace ferry::host
