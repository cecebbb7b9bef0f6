#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "port/endpoint.h"
#include "transport/types.h"
#include "wire/bytes.h"
#include "wire/header.h"
#include "wire/migration.h"

// What is said for a Stopped QP, by itself while its process still has its sockets, or by its
// stand-in. docs/wire.md "Stopped".
//
//   peer         packet                        answer
//   ferry        any request                   NAK_STOPPED
//   ferry        HELLO that knows our cookie   NAK_STOPPED   (this is how a Paused QP probes)
//   ferry        HELLO that does not           HELLO_ACK     (so that it can check the MAC of a
//                                              NAK_STOPPED)
//   unmodified,  request, PSN ≤ ePSN           RNR NAK with the request's own PSN, or nothing
//   unknown                                    (peer_retries.h)
//   any          anything else                 nothing         (of a RESUME, a stand-in notes the
//                                              place: stand_in.cc)
//
// No answer is itself a packet of the left column that is answered, so two stopped QPs never answer
// each other for ever: they never send requests or HELLO.
namespace ferry::transport {

// One end of a connection, as the other end is told of it while its QP is Stopped, and in every
// migration message.
struct StoppedEnd {
  std::uint32_t virtual_qpn = 0, wire_qpn = 0;
  port::Endpoint peer;
  std::uint32_t peer_qpn = 0, peer_wire_qpn = 0;
  PeerClass peer_class = PeerClass::kUnknown;
  std::uint64_t cookie = 0, peer_cookie = 0;
  std::uint32_t epoch = 0;
  std::uint32_t peer_epoch = 0;  // of the peer's last stop that is known
  bool peer_resumed = true;      // ... which has been resumed: its RESUME came from `peer`
  std::uint32_t expected_psn = 0, next_psn = 0, msn = 0;
  Time paused_limit{};  // how long a peer may remain Paused
  // Of a peer that is not of our kind.
  bool gets_rnr_naks = true;
  std::uint8_t rnr_timer = 0;  // code, 5 bits

  void save(wire::ByteWriter& out) const;
  bool load(wire::ByteReader& in);  // false: malformed
};

// A packet of the migration protocol, or an RNR NAK, that is to be sent.
struct ControlPacket {
  port::Endpoint to;
  wire::Header header;
  std::array<std::byte, wire::kMigrationPayload> payload;
  std::size_t payload_size = 0;
};

// The UDP source port of a standard NIC is arbitrary (annex A17.9.3), that of a ferry peer is its
// slot's.
inline bool comes_from(const port::Endpoint& from, const port::Endpoint& peer,
                       PeerClass peer_class) {
  return peer_class == PeerClass::kFerry ? from == peer : from.address == peer.address;
}

// Magic, MAC and QPN are right for a message from the peer. Not for HELLO, which has no MAC.
bool is_authentic(const wire::MigrationMessage& message, const StoppedEnd& qp);

// Whether an authentic RESUME is news or a repetition: not of an earlier stop, and not a
// second restart of the same image elsewhere.
bool is_current(const wire::MigrationMessage& resume, const StoppedEnd& qp);

// The answer to `packet`, if there is one.
std::optional<ControlPacket> answer_of(const StoppedEnd& qp, const wire::Packet& packet,
                                       const port::Endpoint& from);
// A packet with this message of that end (its source and MAC are filled in here) to `to`.
ControlPacket packet_with(const StoppedEnd& qp, wire::MigrationMessage message,
                          const port::Endpoint& to);

}  // namespace ferry::transport
