#include "rnic/engine/endpoints/forwarder.h"

#include <optional>

#include "gsi/packet.h"
#include "port/slot.h"
#include "wire/envelope.h"

namespace ferry::rnic {

bool Forwarder::take(port::Port& port, const port::Received& received, const wire::Packet& packet) {
  const port::Endpoint local = port.local();
  if (packet.header.dest_qpn == gsi::kQpn && local.udp_port == port::kRoceUdpPort) {
    const auto mad = management_ ? gsi::mad_of(packet) : std::nullopt;
    if (mad) management_(*mad, received.from.address, local.address);
    return true;
  }
  if (!wire::pass_on(port, packet, received.bytes, received.from)) return false;
  passed_on_ = true;
  return true;
}

}  // namespace ferry::rnic
