#include "gsi/packet.h"

#include <algorithm>

#include "wire/icrc.h"

namespace ferry::gsi {

std::array<std::byte, kPacketSize> make_packet(const cm::Mad& mad, const port::Endpoint& from,
                                               const port::Endpoint& to, std::uint32_t psn) {
  wire::Header header;
  header.opcode = wire::Opcode::kUdSendOnly;
  header.dest_qpn = kQpn;
  header.psn = psn & 0xFFFFFF;
  header.deth = {kQkey, kQpn};
  std::array<std::byte, kPacketSize> packet{};
  wire::encode_header(header, mad.size(), packet);
  std::copy(mad.begin(), mad.end(), packet.begin() + wire::kBthSize + wire::kDethSize);
  wire::seal(packet, from, to, 0);
  return packet;
}

std::optional<cm::Mad> mad_of(const wire::Packet& packet) {
  if (packet.header.opcode != wire::Opcode::kUdSendOnly || packet.header.dest_qpn != kQpn ||
      packet.header.deth.qkey != kQkey || packet.payload.size() != cm::kMadSize) {
    return std::nullopt;
  }
  cm::Mad mad;
  std::copy(packet.payload.begin(), packet.payload.end(), mad.begin());
  return mad;
}

}  // namespace ferry::gsi
