#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "port/endpoint.h"

// RoCEv2 packet headers (IBTA vol. 1 chapter 9, annexes A14, A17 and A19), parsed and encoded.
//
//   packet   = BTH [extension headers as the opcode demands] payload pad(0..3) ICRC(4)
//   BTH      = opcode:8 se:1 migreq:1 pad:2 tver:4 pkey:16 fecn:1 becn:1 rsvd:6 dest_qpn:24
//              ackreq:1 rsvd:7 psn:24                                                12 bytes
//   XRCETH   = rsvd:8 xrc_srqn:24                                                     4 bytes
//   DETH     = qkey:32 rsvd:8 source_qpn:24                                           8 bytes
//   OriginETH = gid:128 rsvd:8 qpn:24 epoch:32                                       24 bytes
//   FETH     = rsvd:26 selectivity:2 placement:4                                      4 bytes
//   RETH     = virtual_address:64 rkey:32 dma_length:32                              16 bytes
//   AtomicETH = virtual_address:64 rkey:32 swap_or_add:64 compare:64                 28 bytes
//   AETH     = syndrome:8 msn:24                                                      4 bytes
//   AtomicAckETH = original:64                                                        8 bytes
//   ImmDt    = immediate:32                                                           4 bytes
//   IETH     = rkey:32                                                                4 bytes
//
// Extension headers come in the order of this list. All fields are big-endian.
namespace ferry::wire {

// An opcode is service:3 operation:5 (clause 9.2.1).
enum class Service : std::uint8_t { kRc = 0, kUc = 1, kUd = 3, kCnp = 4, kXrc = 5 };

// UC and XRC have the operations of RC: in_service() gives their opcodes, as_rc() the RC opcode.
enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0A,
  kRcWriteOnlyImm = 0x0B,
  kRcReadRequest = 0x0C,
  kRcReadResponseFirst = 0x0D,
  kRcReadResponseMiddle = 0x0E,
  kRcReadResponseLast = 0x0F,
  kRcReadResponseOnly = 0x10,
  kRcAck = 0x11,
  kRcAtomicAck = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInvalidate = 0x16,
  kRcSendOnlyInvalidate = 0x17,
  kRcFlush = 0x1C,
  kRcAtomicWrite = 0x1D,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
  kCnp = 0x81,  // congestion notification packet; ignored
  // Manufacturer range (clause 9.2.1): one opcode for all migration messages (migration.h), one for
  // packets that are passed on among the slots of an address (envelope.h), and two for datagrams of
  // a UD QP that has moved, which carry its virtual GID and QPN.
  kMigration = 0xC0,
  kEnvelope = 0xC1,
  kMovedSendOnly = 0xC4,
  kMovedSendOnlyImm = 0xC5,
};

constexpr Service service_of(Opcode opcode) {
  return static_cast<Service>(static_cast<std::uint8_t>(opcode) >> 5);
}
// The operation of an RC opcode in another service.
constexpr Opcode in_service(Service service, Opcode rc) {
  return static_cast<Opcode>(static_cast<std::uint8_t>(service) << 5 |
                             static_cast<std::uint8_t>(rc));
}
constexpr Opcode as_rc(Opcode opcode) {
  return static_cast<Opcode>(static_cast<std::uint8_t>(opcode) & 0x1F);
}

// AETH syndromes (clause 9.7.5.2): bits 7..5 are the kind, bits 4..0 its value.
namespace syndrome {
inline constexpr std::uint8_t kAck = 0x00;        // | credit code (0..30), or kNoCredits
inline constexpr std::uint8_t kNoCredits = 0x1F;  // "invalid" credit count: there is no limit
inline constexpr std::uint8_t kRnrNak = 0x20;     // | RNR timer code
inline constexpr std::uint8_t kNakPsnSequence = 0x60;
inline constexpr std::uint8_t kNakInvalidRequest = 0x61;
inline constexpr std::uint8_t kNakRemoteAccess = 0x62;
inline constexpr std::uint8_t kNakRemoteOperational = 0x63;
inline constexpr std::uint8_t kNakStopped = 0x65;  // TardiS section 3.4; otherwise reserved
inline constexpr std::uint8_t kKindMask = 0xE0;
inline constexpr std::uint8_t kValueMask = 0x1F;
}  // namespace syndrome

struct Reth {
  std::uint64_t virtual_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t dma_length = 0;  // bytes, 0 .. 2^31
};

struct AtomicEth {
  std::uint64_t virtual_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};

struct Deth {
  std::uint32_t qkey = 0;
  std::uint32_t source_qpn = 0;  // 24 bits
};

// The name by which peers know a moved UD QP (docs/wire.md "Datagrams").
struct OriginEth {
  port::Address gid;      // virtual
  std::uint32_t qpn = 0;  // virtual, 24 bits
  std::uint32_t epoch = 0;
};

// What a FLUSH asks for (annex A19).
struct Feth {
  static constexpr std::uint8_t kGlobalVisibility = 1, kPersistence = 2;  // placement, bits
  static constexpr std::uint8_t kRange = 0, kWholeRegion = 1;             // selectivity
  std::uint8_t placement = 0;                                             // 4 bits
  std::uint8_t selectivity = 0;                                           // 2 bits
};

struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits
};

struct Header {
  Opcode opcode = Opcode::kRcAck;
  bool solicited = false;
  bool ack_request = false;
  std::uint16_t pkey = 0xFFFF;
  std::uint32_t dest_qpn = 0;  // 24 bits
  std::uint32_t psn = 0;       // 24 bits
  Reth reth;                   // when has_reth(opcode)
  Aeth aeth;                   // when has_aeth(opcode)
  // When has_immediate(opcode); network byte order, as in ibv_send_wr.imm_data.
  std::uint32_t immediate = 0;
  std::uint32_t invalidate_rkey = 0;  // when has_invalidate(opcode)
  std::uint32_t xrc_srqn = 0;         // 24 bits; requests of XRC
  Deth deth;                          // UD
  OriginEth origin;                   // when has_origin(opcode)
  Feth feth;                          // FLUSH
  AtomicEth atomic;                   // when has_atomic(opcode)
  std::uint64_t original = 0;         // ATOMIC ACK: the value before the atomic
};

// A parsed packet; `payload` points into the received bytes, without pad and ICRC.
struct Packet {
  Header header;
  std::span<const std::byte> payload;
};

inline constexpr std::uint32_t kLow24 =
    0xFFFFFF;  // of a word: a QPN, a PSN, a message sequence number

inline constexpr std::size_t kIpv4Size = 20;  // without options
inline constexpr std::size_t kIpv6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::size_t kBthSize = 12;
inline constexpr std::size_t kXrcEthSize = 4;
inline constexpr std::size_t kDethSize = 8;
inline constexpr std::size_t kOriginEthSize = 24;
inline constexpr std::size_t kFethSize = 4;
inline constexpr std::size_t kRethSize = 16;
inline constexpr std::size_t kAtomicEthSize = 28;
inline constexpr std::size_t kAethSize = 4;
inline constexpr std::size_t kAtomicAckEthSize = 8;
inline constexpr std::size_t kImmDtSize = 4;
inline constexpr std::size_t kIethSize = 4;
inline constexpr std::size_t kIcrcSize = 4;

bool is_known(Opcode opcode);
// True for packets from a requester to a responder, datagrams among them; false for migration
// messages and envelopes.
bool is_request(Opcode opcode);
bool has_reth(Opcode opcode);
bool has_atomic(Opcode opcode);
bool has_aeth(Opcode opcode);
bool has_immediate(Opcode opcode);
bool has_invalidate(Opcode opcode);
bool has_origin(Opcode opcode);
// Bytes before the payload: BTH and extension headers.
std::size_t header_size(Opcode opcode);
// Bytes of a whole packet with `payload` bytes of payload: headers, payload, pad, ICRC.
std::size_t packet_size(Opcode opcode, std::size_t payload);

// Writes BTH and extension headers for a packet with `payload` bytes of payload (which gives the
// pad count) to out[0 .. header_size), and zeroes the pad. `out` has packet_size(opcode, payload)
// bytes. The caller writes the payload to out + header_size(opcode), and then the ICRC (icrc.h).
void encode_header(const Header& header, std::size_t payload, std::span<std::byte> out);

// Returns nothing for a packet that is too short, has an unknown opcode, a transport version other
// than 0, or lengths that contradict each other or the opcode. Does not look at the ICRC.
std::optional<Packet> parse(std::span<const std::byte> bytes);

}  // namespace ferry::wire
