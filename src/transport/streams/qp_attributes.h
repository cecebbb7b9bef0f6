#pragma once

#include <bit>
#include <cstdint>

#include "transport/movable.h"
#include "transport/peer_retries.h"
#include "transport/streams/path.h"
#include "transport/streams/record_archive.h"
#include "transport/transport.h"
#include "transport/types.h"

namespace ferry::transport {

// Migration messages that the next transmit() sends; bits.
enum Due : std::uint8_t {
  kDueHello = 1,
  kDueHelloAck = 2,
  kDueHelloDone = 4,
  kDueResume = 8,
  kDueResumeAck = 16,
  kDueStoppedAnswer = 32,
};

// The data path tests these flags at each step. Nearly always none is set, which one comparison
// shows.
struct MigrationFlags {
  bool stopped = false;
  bool paused = false;          // the peer is stopped
  bool resume_pending = false;  // our RESUME is not acknowledged: requests and responses wait
  std::uint8_t due = 0;         // bits of Due

  bool any() const { return std::bit_cast<std::uint32_t>(*this) != 0; }
};

// The attributes of a QP (clause 11.2.5), its primary path among them, and its states: the one that
// the application sees, and those that it does not see.
struct QpAttributes {
  QpAttributes(Host& host, const QueueLimits& limits_, const MigrationSettings& settings_,
               std::uint32_t virtual_qpn_, std::uint32_t wire_qpn_);

  const QueueLimits limits;
  const MigrationSettings settings;
  const std::uint32_t virtual_qpn;
  std::uint32_t wire_qpn;
  QpState qp_state = QpState::kReset;
  MigrationFlags migration;
  RtrAttributes rtr;
  RtsAttributes rts;
  PeerRetries agreed;  // if `known`: agreed over the CM
  Path path;

  bool receiving() const {
    return qp_state == QpState::kRtr || qp_state == QpState::kRts || qp_state == QpState::kSqd ||
           qp_state == QpState::kSqe;
  }
  bool requesting() const { return qp_state == QpState::kRts || qp_state == QpState::kSqd; }
  bool stopped() const { return kMovable && migration.stopped; }
  bool migrating() const { return kMovable && migration.any(); }
  bool silent() const {
    return migrating() && (migration.stopped || migration.paused || migration.resume_pending);
  }
  // Whether the QP sends and understands migration messages.
  bool speaks() const { return kMovable && settings.enabled && receiving(); }
  bool is_uc() const { return limits.type == ConnectionType::kUc; }
  std::int64_t packet_cost() const { return rtr.mtu + kPacketOverhead; }
  PeerRetries peer_retries() const;
  bool acceptable(const SendRequest& request) const;
  // Counts a repetition without an answer; more than settings.seek_after in a row call
  // Host::seek().
  void count_unanswered();

  void save(Saver& out) const;
  void load(Loader& in);
};

}  // namespace ferry::transport
