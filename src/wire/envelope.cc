#include "wire/envelope.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "port/slot.h"
#include "wire/big_endian.h"
#include "wire/icrc.h"

namespace ferry::wire {
namespace {

constexpr std::size_t kHeadSize = 20;  // source GID, source UDP port, reserved
constexpr std::uint32_t kIndex = 0;    // reserved: no QP has it

// False for opcodes of the manufacturer range, which are Ferry's own.
bool is_of_standard_nics(Opcode opcode) {
  return opcode < Opcode::kMigration;
}

}  // namespace

bool pass_on(port::Port& port, const Packet& packet, std::span<const std::byte> bytes,
             const port::Endpoint& from) {
  const port::Endpoint local = port.local();
  const std::uint32_t slot = port::slot_of(packet.header.dest_qpn);
  if (local.udp_port != port::kRoceUdpPort || slot == 0 || slot > port::kMaxSlot ||
      !is_of_standard_nics(packet.header.opcode)) {
    return false;
  }
  const std::size_t size = packet_size(Opcode::kEnvelope, kHeadSize + bytes.size());
  if (size > port::kMaxPacket) return false;
  const port::Endpoint to{local.address, port::udp_port_of_slot(slot)};
  std::uint16_t identification = 0;
  const std::span<std::byte> out = port.reserve(to, size, &identification);
  if (out.empty()) return false;
  Header header;
  header.opcode = Opcode::kEnvelope;
  header.dest_qpn = port::make_qpn(slot, kIndex);
  encode_header(header, kHeadSize + bytes.size(), out);
  std::byte* at = out.data() + header_size(Opcode::kEnvelope);
  std::memcpy(at, from.address.bytes.data(), from.address.bytes.size());
  store_be(at + 16, from.udp_port);
  store_be(at + 18, std::uint16_t{0});
  std::memcpy(at + kHeadSize, bytes.data(), bytes.size());
  seal(out, local, to, identification);
  return true;
}

std::optional<Passed> open_envelope(const Packet& envelope, const port::Endpoint& from,
                                    const port::Endpoint& local) {
  const std::uint32_t slot = port::slot_of_udp_port(local.udp_port);
  if (envelope.header.opcode != Opcode::kEnvelope || slot == 0 || slot > port::kMaxSlot ||
      from != port::Endpoint{local.address, port::kRoceUdpPort} ||
      envelope.header.dest_qpn != port::make_qpn(slot, kIndex) ||
      envelope.payload.size() < kHeadSize) {
    return std::nullopt;
  }
  const std::byte* head = envelope.payload.data();
  port::Endpoint source;
  std::memcpy(source.address.bytes.data(), head, source.address.bytes.size());
  source.udp_port = load_be<std::uint16_t>(head + 16);
  if (source.address.is_ipv4() != local.address.is_ipv4() || source.address.is_multicast()) {
    return std::nullopt;
  }
  const auto packet = parse(envelope.payload.subspan(kHeadSize));
  if (!packet || !is_of_standard_nics(packet->header.opcode) ||
      port::slot_of(packet->header.dest_qpn) != slot) {
    return std::nullopt;
  }
  return Passed{*packet, source};
}

}  // namespace ferry::wire
