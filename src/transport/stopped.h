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

// The answers for a Stopped QP (docs/wire.md "Stopped"). The QP gives them itself while its process
// still has its sockets, and its stand-in later.
//
//   peer         packet                        answer
//   ferry        any request                   NAK_STOPPED
//   ferry        HELLO that echoes our cookie  NAK_STOPPED (this is how a Paused QP probes)
//   ferry        HELLO that does not           HELLO_ACK (so that the peer can check the MAC of a
//                                              NAK_STOPPED)
//   unmodified,  request, PSN ≤ ePSN           RNR NAK with the request's own PSN, or nothing
//   unknown                                    (peer_retries.h)
//   any          anything else                 nothing (of a RESUME, a stand-in notes the place:
//                                              stand_in.cc)
//
// No answer is itself a request or HELLO, and no other packet is answered. So two Stopped QPs never
// answer each other for ever.
namespace ferry::transport {

// One end of a connection: what is needed to make its migration messages, and to answer for its QP
// while that is Stopped.
struct StoppedEnd {
  std::uint32_t virtual_qpn = 0, wire_qpn = 0;
  port::Endpoint peer;
  std::uint32_t peer_qpn = 0, peer_wire_qpn = 0;
  PeerClass peer_class = PeerClass::kUnknown;
  std::uint64_t cookie = 0, peer_cookie = 0;
  std::uint32_t epoch = 0;
  std::uint32_t peer_epoch = 0;  // of the peer's last stop that is known
  bool peer_resumed = true;      // the peer has resumed from that stop, at `peer`
  std::uint32_t expected_psn = 0, next_psn = 0, msn = 0;
  Time paused_limit{};  // how long a peer may remain Paused
  // For a peer that is not of our kind:
  bool gets_rnr_naks = true;
  std::uint8_t rnr_timer = 0;  // code, 5 bits

  void save(wire::ByteWriter& out) const;
  bool load(wire::ByteReader& in);  // false: malformed
};

// A packet to be sent that is of the migration protocol, or an RNR NAK.
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

// Whether the source QPN and the MAC are those of a message from the peer, which is ferry. Not for
// HELLO, which has no MAC.
bool is_authentic(const wire::MigrationMessage& message, const StoppedEnd& qp);

// Whether an authentic RESUME is news or a repetition. False: it is of an earlier stop, or of a
// second restart of the same image at another place.
bool is_current(const wire::MigrationMessage& resume, const StoppedEnd& qp);

// The answer to `packet` by the table above, if there is one.
std::optional<ControlPacket> answer_of(const StoppedEnd& qp, const wire::Packet& packet,
                                       const port::Endpoint& from);
// A packet to `to` with this message of the end `qp`; fills in the message's source QPN and MAC.
ControlPacket packet_with(const StoppedEnd& qp, wire::MigrationMessage message,
                          const port::Endpoint& to);

}  // namespace ferry::transport
