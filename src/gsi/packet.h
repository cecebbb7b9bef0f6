#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cm/message.h"
#include "port/endpoint.h"
#include "wire/header.h"

// Management packets of the general services interface, QP 1 (IBTA vol. 1 clause 13.5.1, annex
// A17.9.2): a MAD in one UD SEND to QP 1 with the well-known Q_Key.
namespace ferry::gsi {

inline constexpr std::uint32_t kQpn = 1;
inline constexpr std::uint32_t kQkey = 0x80010000;  // clause 10.2.5

inline constexpr std::size_t kPacketSize =
    wire::kBthSize + wire::kDethSize + cm::kMadSize + wire::kIcrcSize;

// The packet from BTH to ICRC; the low 24 bits of `psn` count.
std::array<std::byte, kPacketSize> make_packet(const cm::Mad& mad, const port::Endpoint& from,
                                               const port::Endpoint& to, std::uint32_t psn);

// The MAD of a packet that was verified and parsed; nothing when it is not one for QP 1.
std::optional<cm::Mad> mad_of(const wire::Packet& packet);

}  // namespace ferry::gsi
