#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "port/endpoint.h"
#include "wire/header.h"

// The messages of the connection-migration protocol (docs/wire.md, "Migration messages"; TardiS
// section 3.4). All but NAK_STOPPED are packets with Opcode::kMigration, whose payload is a
// MigrationMessage. NAK_STOPPED is an RC ACK with syndrome 0x65 whose payload is a MigrationMessage
// of that type. They consume no PSN; those of a connection carry BTH.PSN = ePSN - 1.
namespace ferry::wire {

inline constexpr std::uint32_t kMigrationMagic = 0x46455252;  // "FERR"
inline constexpr std::uint8_t kMigrationVersion = 1;

enum class MigrationType : std::uint8_t {
  kHello = 1,
  kHelloAck = 2,
  kHelloDone = 3,  // the third step of the handshake
  kPause = 4,
  kNakStopped = 5,
  kResume = 6,
  kResumeAck = 7,
  kMoved = 8,
  kLocate = 9,  // UD: asks where a QP is; MOVED answers, also when it has not moved
};
inline constexpr MigrationType kLastMigrationType = MigrationType::kLocate;

// One message; fields that a type does not use are zero. docs/wire.md has the bytes.
struct MigrationMessage {
  MigrationType type = MigrationType::kHello;
  std::uint8_t version = kMigrationVersion;
  std::uint32_t source_qpn = 0;         // virtual QPN of the QP that it is from, or about (MOVED)
  std::uint32_t epoch = 0;              // all but HELLO*, LOCATE: number of the stop; RESUME_ACK:
                                        // that of the RESUME which it acknowledges
  std::uint64_t cookie = 0;             // HELLO*: the sender's; LOCATE: the asker's nonce
  std::uint64_t echo = 0;               // HELLO*: the receiver's cookie, 0 while unknown;
                                        // MOVED of UD: the nonce of LOCATE, 0: a hint to ask;
                                        // MOVED in answer to HELLO: the cookie of that HELLO
  std::uint32_t wire_qpn = 0;           // RESUME*, MOVED, LOCATE: where to send from now on
  std::uint32_t first_unacked_psn = 0;  // RESUME*: of the sender's requester
  std::uint32_t expected_psn = 0;       // RESUME*: ePSN of the sender's responder
  port::Endpoint location;              // RESUME*: where the sender is; MOVED: where the QP is; a
                                        // hint: the virtual GID
  std::uint64_t mac = 0;                // all but HELLO*, MOVED in answer to HELLO, and UD's
};

inline constexpr std::size_t kMigrationPayload = 80;  // bytes, the same for every type

// Key of one direction of a connection, made of both cookies. The other direction has another key,
// so that nobody can send a message back to its sender as the peer's, even when both ends have the
// same QPN.
struct MacKey {
  std::uint64_t k0 = 0, k1 = 0;
};
MacKey mac_key(std::uint64_t sender_cookie, std::uint64_t receiver_cookie);

// SipHash-2-4 over every field of the message but `mac`, and the receiver's virtual QPN (which
// never changes, unlike its wire QPN).
std::uint64_t mac_of(const MigrationMessage& message, std::uint32_t receiver_qpn,
                     const MacKey& key);

void encode(const MigrationMessage& message, std::span<std::byte, kMigrationPayload> out);
// Returns nothing for a wrong length, magic, version or type, or a reserved bit that is not 0. Does
// not check the MAC.
std::optional<MigrationMessage> parse_migration(std::span<const std::byte> payload);

}  // namespace ferry::wire
