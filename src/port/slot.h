#pragma once

#include <cstdint>

// QPN slots (docs/wire.md "QPN slots"): a QPN is slot:10 | index:14, and a slot has one UDP port,
// so that the kernel's bind() allocates QPN ranges among the processes of a network namespace.
namespace ferry::port {

inline constexpr std::uint16_t kRoceUdpPort = 4791;       // IBTA annex A17.4.2
inline constexpr std::uint16_t kSlotUdpPortBase = 61440;  // outside Linux's ephemeral range
inline constexpr std::uint32_t kSlotIndexBits = 14;
inline constexpr std::uint32_t kSlotIndexMask = (1u << kSlotIndexBits) - 1;
inline constexpr std::uint32_t kMaxSlot = 1022;  // 1023 would contain 0xFFFFFF, the multicast QPN
// No slot gives a QP one of its first indices: in slot 0 they are QP 0, QP 1 and room for more.
inline constexpr std::uint32_t kReservedIndices = 16;

constexpr std::uint32_t slot_of(std::uint32_t qpn) {
  return qpn >> kSlotIndexBits;
}
constexpr std::uint32_t index_of(std::uint32_t qpn) {
  return qpn & kSlotIndexMask;
}
constexpr std::uint32_t make_qpn(std::uint32_t slot, std::uint32_t index) {
  return slot << kSlotIndexBits | index;
}
constexpr std::uint16_t udp_port_of_slot(std::uint32_t slot) {
  return slot == 0 ? kRoceUdpPort : static_cast<std::uint16_t>(kSlotUdpPortBase + slot);
}
// The inverse of udp_port_of_slot(); kMaxSlot + 1 for a port that is no slot's.
constexpr std::uint32_t slot_of_udp_port(std::uint16_t udp_port) {
  if (udp_port == kRoceUdpPort) return 0;
  const std::uint32_t slot = udp_port - std::uint32_t{kSlotUdpPortBase};
  return udp_port > kSlotUdpPortBase && slot <= kMaxSlot ? slot : kMaxSlot + 1;
}
constexpr std::uint16_t udp_port_of_qpn(std::uint32_t qpn) {
  return udp_port_of_slot(slot_of(qpn));
}

}  // namespace ferry::port
