#include "wire/migration.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/big_endian.h"
#include "wire/siphash.h"

// The payload of a migration message; all fields big-endian (docs/wire.md, "Migration messages"):
//
//    0 magic:32              4 version:8  5 type:8  6 length:16
//    8 rsvd:8 source_qpn:24 12 epoch:32
//   16 cookie:64            24 echo:64
//   32 rsvd:8 wire_qpn:24   36 rsvd:8 first_unacked_psn:24
//   40 rsvd:8 expected_psn:24
//   44 location UDP port:16 46 rsvd:16        48 location address:128
//   64 rsvd:64              72 mac:64
namespace ferry::wire {
MacKey mac_key(std::uint64_t sender_cookie, std::uint64_t receiver_cookie) {
  return {sender_cookie, receiver_cookie};
}

std::uint64_t mac_of(const MigrationMessage& message, std::uint32_t receiver_qpn,
                     const MacKey& key) {
  MigrationMessage plain = message;
  plain.mac = 0;
  std::array<std::byte, kMigrationPayload + 4> bytes;
  encode(plain, std::span(bytes).first<kMigrationPayload>());
  store_be(bytes.data() + kMigrationPayload, receiver_qpn & kLow24);
  return siphash24(key.k0, key.k1, bytes);
}

void encode(const MigrationMessage& message, std::span<std::byte, kMigrationPayload> out) {
  std::byte* at = out.data();
  std::memset(at, 0, out.size());
  store_be(at, kMigrationMagic);
  at[4] = static_cast<std::byte>(message.version);
  at[5] = static_cast<std::byte>(message.type);
  store_be(at + 6, static_cast<std::uint16_t>(kMigrationPayload));
  store_be(at + 8, message.source_qpn & kLow24);
  store_be(at + 12, message.epoch);
  store_be(at + 16, message.cookie);
  store_be(at + 24, message.echo);
  store_be(at + 32, message.wire_qpn & kLow24);
  store_be(at + 36, message.first_unacked_psn & kLow24);
  store_be(at + 40, message.expected_psn & kLow24);
  store_be(at + 44, message.location.udp_port);
  std::memcpy(at + 48, message.location.address.bytes.data(), 16);
  store_be(at + 72, message.mac);
}

std::optional<MigrationMessage> parse_migration(std::span<const std::byte> payload) {
  if (payload.size() != kMigrationPayload) return std::nullopt;
  const std::byte* at = payload.data();
  const auto type = static_cast<std::uint8_t>(at[5]);
  if (load_be<std::uint32_t>(at) != kMigrationMagic ||
      at[4] != static_cast<std::byte>(kMigrationVersion) ||
      type < static_cast<std::uint8_t>(MigrationType::kHello) ||
      type > static_cast<std::uint8_t>(kLastMigrationType) ||
      load_be<std::uint16_t>(at + 6) != kMigrationPayload) {
    return std::nullopt;
  }
  MigrationMessage message;
  message.type = static_cast<MigrationType>(type);
  message.version = static_cast<std::uint8_t>(at[4]);
  message.source_qpn = load_be<std::uint32_t>(at + 8) & kLow24;
  message.epoch = load_be<std::uint32_t>(at + 12);
  message.cookie = load_be<std::uint64_t>(at + 16);
  message.echo = load_be<std::uint64_t>(at + 24);
  message.wire_qpn = load_be<std::uint32_t>(at + 32) & kLow24;
  message.first_unacked_psn = load_be<std::uint32_t>(at + 36) & kLow24;
  message.expected_psn = load_be<std::uint32_t>(at + 40) & kLow24;
  message.location.udp_port = load_be<std::uint16_t>(at + 44);
  std::memcpy(message.location.address.bytes.data(), at + 48, 16);
  message.mac = load_be<std::uint64_t>(at + 72);
  // The MAC covers what encode() writes, so a message with any other bit set is refused.
  std::array<std::byte, kMigrationPayload> canonical;
  encode(message, canonical);
  if (!std::equal(canonical.begin(), canonical.end(), payload.begin())) return std::nullopt;
  return message;
}

}  // namespace ferry::wire
