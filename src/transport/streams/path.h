#pragma once

#include <cstdint>

#include "port/endpoint.h"
#include "port/port.h"
#include "transport/host.h"
#include "transport/stopped.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The bytes with which a packet counts in the Host's window beyond its payload: headers and ICRC
// have at most 64 bytes.
inline constexpr std::int64_t kPacketOverhead = port::window_charge(64);

// The way to the peer: where the peer is now, of what kind it is, and counters of the traffic.
struct Path {
  Path(Host& host_, wire::Service service_) : host(host_), service(service_) {}

  Host& host;
  const wire::Service service;
  // The peer is not known to be ferry, and has not answered HELLO at the UDP port of its QPN's
  // slot: everything but migration messages goes to port 4791.
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
  // Fills in a fresh header. `opcode` is RC's; the header gets that of the connection's service.
  void address(wire::Header& header, wire::Opcode opcode, std::uint32_t psn) const {
    header.opcode = wire::in_service(service, opcode);
    header.dest_qpn = peer_wire_qpn;
    header.psn = psn;
  }
  EmitResult emit(OutPacket& packet);
  // Host::window() and Host::account() for the peer's place.
  std::int64_t window() const { return host.window(peer); }
  void account(std::int64_t bytes) { host.account(peer, bytes); }
  // Forgets the peer, not the counters.
  void forget();
};

}  // namespace ferry::transport
