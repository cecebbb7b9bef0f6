#include "wire/migration.h"

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "hex.h"

namespace ferry::wire {
namespace {

using port::Address;

constexpr MigrationType kTypes[] = {
    MigrationType::kHello,     MigrationType::kHelloAck,   MigrationType::kHelloDone,
    MigrationType::kPause,     MigrationType::kNakStopped, MigrationType::kResume,
    MigrationType::kResumeAck, MigrationType::kMoved,      MigrationType::kLocate};
static_assert(std::size(kTypes) == static_cast<std::size_t>(kLastMigrationType));

MigrationMessage sample(MigrationType type) {
  MigrationMessage message;
  message.type = type;
  message.source_qpn = 0x010203;
  message.epoch = 0x04050607;
  message.cookie = 0x1011121314151617;
  message.echo = 0x2021222324252627;
  message.wire_qpn = 0x313233;
  message.first_unacked_psn = 0x414243;
  message.expected_psn = 0x515253;
  message.location = {Address::from_ipv4(0x0A000002), 61441};
  message.mac = 0x6061626364656667;
  return message;
}

std::vector<std::byte> bytes_of(const MigrationMessage& message) {
  std::array<std::byte, kMigrationPayload> bytes;
  encode(message, bytes);
  return {bytes.begin(), bytes.end()};
}

TEST(Migration, ByteForByte) {
  EXPECT_EQ(bytes_of(sample(MigrationType::kMoved)),
            from_hex("46455252 01 08 0050"  // "FERR", version, type, length
                     "00010203 04050607"
                     "1011121314151617 2021222324252627"
                     "00313233 00414243 00515253"
                     "f001 0000"
                     "00000000000000000000ffff0a000002"
                     "0000000000000000"
                     "6061626364656667"));
}

TEST(Migration, EveryTypeRoundTrips) {
  for (MigrationType type : kTypes) {
    const MigrationMessage sent = sample(type);
    const auto got = parse_migration(bytes_of(sent));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->type, sent.type);
    EXPECT_EQ(got->version, kMigrationVersion);
    EXPECT_EQ(got->source_qpn, sent.source_qpn);
    EXPECT_EQ(got->epoch, sent.epoch);
    EXPECT_EQ(got->cookie, sent.cookie);
    EXPECT_EQ(got->echo, sent.echo);
    EXPECT_EQ(got->wire_qpn, sent.wire_qpn);
    EXPECT_EQ(got->first_unacked_psn, sent.first_unacked_psn);
    EXPECT_EQ(got->expected_psn, sent.expected_psn);
    EXPECT_EQ(got->location, sent.location);
    EXPECT_EQ(got->mac, sent.mac);
  }
}

TEST(Migration, RefusesOtherLengthsMagicsVersionsAndTypes) {
  const auto good = bytes_of(sample(MigrationType::kPause));
  ASSERT_TRUE(parse_migration(good));
  for (std::size_t size = 0; size <= good.size() + 8; ++size) {
    std::vector<std::byte> other = good;
    other.resize(size);
    EXPECT_EQ(parse_migration(other).has_value(), size == good.size());
  }
  for (std::size_t at : {0u, 1u, 2u, 3u, 4u, 6u, 7u}) {
    auto bad = good;
    bad[at] ^= std::byte{0x80};
    EXPECT_FALSE(parse_migration(bad)) << "byte " << at;
  }
  for (int type = 0; type < 256; ++type) {
    auto other = good;
    other[5] = static_cast<std::byte>(type);
    EXPECT_EQ(parse_migration(other).has_value(), type >= 1 && type <= 9) << type;
  }
}

TEST(Migration, GarbageIsRefused) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    std::vector<std::byte> bytes(random() % 2 ? kMigrationPayload : random() % 100);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    ASSERT_FALSE(parse_migration(bytes));
  }
}

// Both ends may have the same QPN: what one sent must not pass as its peer's when it comes back.
TEST(Migration, AMessageSentBackHasTheWrongMac) {
  MigrationMessage pause = sample(MigrationType::kPause);
  pause.source_qpn = 77;
  const std::uint64_t mac = mac_of(pause, 77, mac_key(0x1234, 0x5678));
  EXPECT_EQ(mac, mac_of(pause, 77, mac_key(0x1234, 0x5678)));
  EXPECT_NE(mac, mac_of(pause, 77, mac_key(0x5678, 0x1234)));
}

TEST(Migration, MacChangesWithEveryFieldButItself) {
  const MacKey key = mac_key(0x1234, 0x5678);
  const MigrationMessage base = sample(MigrationType::kResume);
  const std::uint64_t mac = mac_of(base, 77, key);

  MigrationMessage with_mac = base;
  with_mac.mac = 1;
  EXPECT_EQ(mac_of(with_mac, 77, key), mac);

  std::set<std::uint64_t> macs{mac};
  auto changed = [&](const std::function<void(MigrationMessage&)>& change) {
    MigrationMessage other = base;
    change(other);
    EXPECT_TRUE(macs.insert(mac_of(other, 77, key)).second);
  };
  changed([](auto& m) { m.type = MigrationType::kResumeAck; });
  changed([](auto& m) { m.version ^= 2; });
  changed([](auto& m) { m.source_qpn ^= 1; });
  changed([](auto& m) { m.epoch ^= 1; });
  changed([](auto& m) { m.cookie ^= 1; });
  changed([](auto& m) { m.echo ^= 1; });
  changed([](auto& m) { m.wire_qpn ^= 1; });
  changed([](auto& m) { m.first_unacked_psn ^= 1; });
  changed([](auto& m) { m.expected_psn ^= 1; });
  changed([](auto& m) { m.location.udp_port ^= 1; });
  changed([](auto& m) { m.location.address.bytes[15] ^= std::byte{1}; });
  EXPECT_TRUE(macs.insert(mac_of(base, 78, key)).second) << "receiver's QPN";
  EXPECT_TRUE(macs.insert(mac_of(base, 77, mac_key(0x1234, 0x5679))).second) << "key";
}

TEST(Migration, MacHoldsThroughTheWire) {
  const MacKey key = mac_key(5, 6);
  MigrationMessage sent = sample(MigrationType::kPause);
  sent.mac = mac_of(sent, 0x99, key);
  const auto got = parse_migration(bytes_of(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(mac_of(*got, 0x99, key), got->mac);
}

}  // namespace
}  // namespace ferry::wire
