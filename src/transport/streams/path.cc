#include "transport/streams/path.h"

#include "port/slot.h"
#include "transport/movable.h"

namespace ferry::transport {

// A standard NIC's QPN says nothing of a slot.
port::Endpoint Path::transport_port() const {
  return ferry() || !presumed_standard ? peer : port::Endpoint{peer.address, port::kRoceUdpPort};
}

EmitResult Path::emit(OutPacket& packet) {
  packet.to = is_migration(packet.header) ? peer : transport_port();
  const EmitResult result = host.emit(packet);
  if (result == EmitResult::kOk) {
    ++counters.sent_packets;
    counters.sent_bytes += packet.length;
  }
  return result;
}

void Path::forget() {
  presumed_standard = false;
  peer_class = PeerClass::kUnknown;
  peer = {};
  peer_wire_qpn = 0;
  unanswered = 0;
}

}  // namespace ferry::transport
