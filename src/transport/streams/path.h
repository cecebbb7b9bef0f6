#pragma once

#include <cstdint>

#include "port/endpoint.h"
#include "port/port.h"
#include "transport/host.h"
#include "transport/stopped.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// What a packet takes of the Host's window beyond its payload: headers and ICRC have at most 64
// bytes.
inline constexpr std::int64_t kPacketOverhead = port::window_charge(64);

// The way to the peer: where it is now, of what kind it is, and what went there and came from there.
struct Path {
  Path(Host& host_, wire::Service service_) : host(host_), service(service_) {}

  Host& host;
  const wire::Service service;
  // The peer is of unknown kind, and has not answered at the UDP port of its QPN's slot: what is not
  // Ferry's own goes to 4791.
  bool presumed_standard = false;
  PeerClass peer_class = PeerClass::kUnknown;
  port::Endpoint peer;  // where it is now
  std::uint32_t peer_wire_qpn = 0;
  unsigned unanswered = 0;  // repetitions since the peer was last heard
  Counters counters;

  bool ferry() const { return peer_class == PeerClass::kFerry; }
  // Where everything but migration messages goes.
  port::Endpoint transport_port() const;
  bool comes_from_peer(const port::Endpoint& from) const {
    return comes_from(from, peer, peer_class);
  }
  // Fills in a fresh header. `opcode` is RC's, the header's that of the connection's service.
  void address(wire::Header& header, wire::Opcode opcode, std::uint32_t psn) const {
    header.opcode = wire::in_service(service, opcode);
    header.dest_qpn = peer_wire_qpn;
    header.psn = psn;
  }
  EmitResult emit(OutPacket& packet);
  // Bytes that may be under way, and how many more (or fewer) are.
  std::int64_t window() const { return host.window(peer); }
  void account(std::int64_t bytes) { host.account(peer, bytes); }
  // Forgets the peer, not the counters.
  void forget();
};

}  // namespace ferry::transport
