#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "port/endpoint.h"
#include "wire/header.h"

// Types that the transport and its RNIC share.
namespace ferry::transport {

// Monotonic time since any fixed epoch. The transport never reads a clock: every entry point that
// needs time takes it as an argument.
using Time = std::chrono::nanoseconds;
inline constexpr Time kNever = Time::max();

inline constexpr std::size_t kMaxSge = 32;                // scatter/gather elements of one request
inline constexpr std::size_t kMaxInline = 1024;           // bytes of inline data of one request
inline constexpr std::uint64_t kMaxMessage = 1ull << 31;  // bytes (clause 9.7.5.1.3)

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

// The values are part of the image format. kLocalInvalidate and kBindWindow use no PSN: they are
// carried out in the order of the send queue and send nothing.
enum class Operation : std::uint8_t {
  kSend,
  kSendImm,
  kWrite,
  kWriteImm,
  kRead,
  kCompareSwap,
  kFetchAdd,
  kSendInvalidate,
  kLocalInvalidate,
  kBindWindow,
  kAtomicWrite,
  kFlush,
};

// What a bind gives a memory window (clause 10.6.7). Windows of type 1 get their new rkey from
// ibv_bind_mw, those of type 2 the rkey of the request.
struct WindowBinding {
  std::uint32_t window = 0;  // handle of the device's window (device::Mw::handle)
  std::uint32_t rkey = 0;    // of the window from now on
  std::uint32_t lkey = 0;    // of the MR beneath
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // bytes; 0 unbinds a window of type 1
  std::uint32_t access = 0;  // AccessFlags
};

// Where one datagram goes: an address handle and the UD fields of its request.
struct DatagramAddress {
  port::Address destination;  // virtual GID, or a multicast one
  std::uint32_t qpn = 0;      // virtual; 0xFFFFFF: multicast
  std::uint32_t qkey = 0;     // bit 31 set: the QP's own Q_Key is used instead (clause 10.2.5)
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t flow_label = 0;
};

// Where datagrams to a UD QP go now.
struct DatagramPlace {
  port::Endpoint endpoint;
  std::uint32_t wire_qpn = 0;
  auto operator<=>(const DatagramPlace&) const = default;
};

// Who a UD QP is, and where it is.
struct DatagramSource {
  port::Address gid;  // virtual
  DatagramPlace place;
};

// One send request. The send queue copies its SGEs and inline data (send_queue.h).
struct SendRequest {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::kSend;
  bool signaled = false;  // success gives a CQE, too
  bool solicited = false;
  bool fence = false;
  std::uint32_t immediate = 0;  // network byte order
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t length = 0;  // bytes: of the inline data or the sum of the SGEs; kFlush: the range
  std::uint8_t sge_count = 0;
  const Sge* sges = nullptr;
  const std::byte* inline_data = nullptr;  // `length` bytes, then SGEs are ignored; or null

  std::uint64_t compare_add = 0, swap = 0;    // atomics; the SGEs take at least 8 bytes
  std::uint32_t invalidate_rkey = 0;          // kSendInvalidate, kLocalInvalidate
  std::uint32_t remote_srqn = 0;              // XRC: the peer's SRQ
  const WindowBinding* binding = nullptr;     // kBindWindow
  wire::Feth flush{};                         // kFlush: `length` bytes, without SGEs
  const DatagramAddress* datagram = nullptr;  // UD
};

// One receive-queue WQE. A QP keeps one of these for all its messages, with room for its SGEs.
struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  std::vector<Sge> sges;  // at most kMaxSge

  std::uint64_t length() const {
    std::uint64_t sum = 0;
    for (const Sge& sge : sges) sum += sge.length;
    return sum;
  }
};

// Completion statuses, with the values of ibv_wc_status (transport/ does not include verbs.h; rnic/
// has the static_asserts).
enum class Status : std::uint8_t {
  kSuccess = 0,
  kLocalLength = 1,
  kLocalQpOperation = 2,
  kLocalProtection = 4,
  kFlush = 5,
  kWindowBind = 6,
  kBadResponse = 7,
  kLocalAccess = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccess = 10,
  kRemoteOperation = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
};

struct SendCompletion {
  std::uint64_t wr_id = 0;
  Status status = Status::kSuccess;
  Operation operation = Operation::kSend;
  std::uint32_t bytes = 0;  // READ: its length; atomic: 8; others: 0
};

struct ReceiveCompletion {
  std::uint64_t wr_id = 0;
  Status status = Status::kSuccess;
  bool is_write = false;  // RECV_RDMA_WITH_IMM
  bool has_immediate = false;
  bool solicited = false;
  std::uint32_t immediate = 0;  // network byte order
  std::uint32_t bytes = 0;      // UD: includes the 40 bytes of the GRH
  bool has_invalidated = false;
  std::uint32_t invalidated_rkey = 0;
  std::uint32_t source_qpn = 0;    // UD: virtual
  bool has_grh = false;            // UD
  std::uint8_t service_level = 0;  // UD: 2 over IPv4, 1 over IPv6, as mlx5 tells it
  std::uint32_t srqn = 0;          // XRC: the SRQ whose WQE this was
};

// QP states as the application sees them (clause 10.3.1).
enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kError };

// The states that the application does not see (TardiS section 3.3).
enum class MigrationState : std::uint8_t { kNone, kStopped, kPaused };

// What we know of the peer's kind (docs/wire.md "HELLO").
enum class PeerClass : std::uint8_t { kUnknown, kFerry, kUnmodified };

enum AccessFlags : std::uint32_t {  // the values of ibv_access_flags
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
};

struct Counters {
  std::uint64_t sent_packets = 0;
  std::uint64_t received_packets = 0;
  std::uint64_t sent_bytes = 0;      // payload
  std::uint64_t received_bytes = 0;  // payload
  std::uint64_t retransmitted_packets = 0;
  std::uint64_t duplicate_packets = 0;    // requests that were executed before
  std::uint64_t out_of_sequence = 0;      // requests behind a gap
  std::uint64_t duplicate_responses = 0;  // of READs and atomics
  std::uint64_t lost_responses = 0;       // a later response showed the loss (implied NAK)
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t dropped_forged = 0;    // wrong source, epoch, MAC or partition
  std::uint64_t dropped_qkey = 0;      // UD: wrong Q_Key
  std::uint64_t dropped_messages = 0;  // UD: no receive WQE; UC: any message that was dropped

  Counters& operator+=(const Counters& other);
};

inline Counters& Counters::operator+=(const Counters& other) {
  sent_packets += other.sent_packets;
  received_packets += other.received_packets;
  sent_bytes += other.sent_bytes;
  received_bytes += other.received_bytes;
  retransmitted_packets += other.retransmitted_packets;
  duplicate_packets += other.duplicate_packets;
  out_of_sequence += other.out_of_sequence;
  duplicate_responses += other.duplicate_responses;
  lost_responses += other.lost_responses;
  rnr_naks_sent += other.rnr_naks_sent;
  rnr_naks_received += other.rnr_naks_received;
  timeouts += other.timeouts;
  dropped_forged += other.dropped_forged;
  dropped_qkey += other.dropped_qkey;
  dropped_messages += other.dropped_messages;
  return *this;
}

}  // namespace ferry::transport
