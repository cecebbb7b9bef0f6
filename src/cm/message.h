#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "port/endpoint.h"

// Messages of the communication manager (IBTA vol. 1 clause 12.6 and 12.11): MADs of class 7, which
// travel from QP 1 to QP 1.
//
//   MAD      = base_version:8(1) class:8(7) class_version:8(2) method:8(3, Send) status:16
//              class_specific:16 transaction_id:64 attribute_id:16 rsvd:16 modifier:32     24 bytes
//              message                                                                    232 bytes
//   REQ  10h = local_id:32 rsvd:32 service_id:64 guid:64 rsvd:32 qkey:32
//              qpn:24 responder_resources:8 eecn:24 initiator_depth:8
//              remote_eecn:24 remote_timeout:5 transport:2 flow_control:1
//              psn:24 local_timeout:5 retry_count:3
//              pkey:16 mtu:4 rdc:1 rnr_retry:3 max_cm_retries:4 srq:1 extended_transport:3
//              path(44) alternate_path(44) private(92)
//   path     = local_lid:16 remote_lid:16 local_gid:128 remote_gid:128 flow_label:20 rsvd:6 rate:6
//              traffic_class:8 hop_limit:8 sl:4 subnet_local:1 rsvd:3 ack_timeout:5 rsvd:3
//   MRA  11h = local_id:32 remote_id:32 message:2 rsvd:6 service_timeout:5 rsvd:3 private(222)
//   REJ  12h = local_id:32 remote_id:32 message:2 rsvd:6 info_length:7 rsvd:1 reason:16 info(72)
//              private(148)
//   REP  13h = local_id:32 remote_id:32 qkey:32 qpn:24 rsvd:8 eecn:24 rsvd:8 psn:24 rsvd:8
//              responder_resources:8 initiator_depth:8 ack_delay:5 failover:2 flow_control:1
//              rnr_retry:3 srq:1 rsvd:4 guid:64 private(196)
//   RTU  14h = local_id:32 remote_id:32 private(224)
//   DREQ 15h = local_id:32 remote_id:32 remote_qpn:24 rsvd:8 private(220)
//   DREP 16h = local_id:32 remote_id:32 private(224)
//   SIDR_REQ 17h = request_id:32 pkey:16 rsvd:16 service_id:64 private(216)
//   SIDR_REP 18h = request_id:32 status:8 info_length:8 rsvd:16 qpn:24 rsvd:8 service_id:64 qkey:32
//              info(72) private(136)
//
// All fields are big-endian. Timeouts t mean 4.096 µs · 2^t. "local" is the sender's side.
namespace ferry::cm {

inline constexpr std::size_t kMadSize = 256;
using Mad = std::array<std::byte, kMadSize>;

using CommId = std::uint32_t;
using ServiceId = std::uint64_t;

template <std::size_t N>
using Private = std::array<std::byte, N>;

enum class Transport : std::uint8_t { kRc = 0, kUc = 1, kXrc = 3 };

struct Path {
  port::Address local, remote;  // GIDs
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t sl = 0;
  std::uint8_t rate = 0;         // ibv_rate
  std::uint8_t ack_timeout = 0;  // of the sender's QP
};

struct Req {
  CommId local_id = 0;
  ServiceId service_id = 0;
  std::uint64_t guid = 0;
  std::uint32_t qpn = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t remote_timeout = 0, local_timeout = 0;
  Transport transport = Transport::kRc;
  bool flow_control = false, srq = false;
  // The PSN with which the receiver of this message starts to send.
  std::uint32_t psn = 0;
  std::uint8_t retry_count = 0, rnr_retry = 0, max_cm_retries = 0;
  std::uint16_t pkey = 0xFFFF;
  std::uint8_t mtu = 0;  // ibv_mtu
  Path path;
  Private<92> data{};
};

// Which message an MRA or a REJ answers.
enum class Answered : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

struct Mra {
  CommId local_id = 0, remote_id = 0;
  Answered message = Answered::kReq;
  std::uint8_t service_timeout = 0;
  Private<222> data{};
};

// Reasons of a REJ (table 112); these are what this implementation gives or looks at.
enum class Reason : std::uint16_t {
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidCommId = 6,
  kInvalidServiceId = 8,
  kInvalidTransport = 9,
  kStaleConnection = 10,
  kRedirect = 24,  // of CM and port; `info` is a ClassPortInfo
  kConsumer = 28,
};

struct Rej {
  CommId local_id = 0, remote_id = 0;
  Answered message = Answered::kReq;
  Reason reason{};
  std::uint8_t info_length = 0;
  Private<72> info{};
  Private<148> data{};
};

struct Rep {
  CommId local_id = 0, remote_id = 0;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  // as in REQ
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t ack_delay = 0;
  bool flow_control = false, srq = false;
  std::uint8_t rnr_retry = 0;
  std::uint64_t guid = 0;
  Private<196> data{};
};

struct Rtu {
  CommId local_id = 0, remote_id = 0;
  Private<224> data{};
};

struct Dreq {
  CommId local_id = 0, remote_id = 0;
  std::uint32_t remote_qpn = 0;
  Private<220> data{};
};

struct Drep {
  CommId local_id = 0, remote_id = 0;
  Private<224> data{};
};

struct SidrReq {
  CommId request_id = 0;
  std::uint16_t pkey = 0xFFFF;
  ServiceId service_id = 0;
  Private<216> data{};
};

enum class SidrStatus : std::uint8_t {
  kValid = 0,
  kUnsupported = 1,  // nobody listens
  kRejected = 2,
  kNoQp = 3,
  kRedirect = 4,  // `info` is a ClassPortInfo
};

struct SidrRep {
  CommId request_id = 0;
  SidrStatus status = SidrStatus::kValid;
  std::uint32_t qpn = 0;
  ServiceId service_id = 0;
  std::uint32_t qkey = 0;
  std::uint8_t info_length = 0;
  Private<72> info{};
  Private<136> data{};
};

// ClassPortInfo (clause 13.4.8.1), as a redirection in RoCE needs it: the GID to ask instead. The
// QP there is always QP 1, with its well-known Q_Key.
//
//   rsvd:64 redirect_gid:128 rsvd:64 rsvd:8 redirect_qp:24 redirect_qkey:32 rsvd:256
inline constexpr std::uint8_t kClassPortInfoLength = 72;
Private<72> class_port_info(const port::Address& redirect);
// The GID that `info` names; nothing when it names none, a multicast GID, or another QP than QP 1.
std::optional<port::Address> redirect_of(const Private<72>& info);

using Body = std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep>;

struct Message {
  std::uint64_t transaction_id = 0;
  Body body;
};

Mad encode(const Message& message);

// Nothing for a MAD of another class, version, method or attribute, or of another length.
std::optional<Message> parse(std::span<const std::byte> mad);

}  // namespace ferry::cm
