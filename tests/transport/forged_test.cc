#include <algorithm>

#include "transport/migration/stand_in.h"
#include "transport/script.h"

// Migration messages that the peer never sent: forged, cut off, sent back, sent again (docs/wire.md
// "Migration messages", docs/security.md). Each is dropped and counted, and nothing changes.
namespace ferry::transport::test {
namespace {

const port::Endpoint kNewPlace = endpoint(9, 61441);

// What the peer would send about its stop `epoch`.
std::vector<MigrationMessage> messages_of(std::uint32_t epoch) {
  const MigrationMessage resume{.type = MigrationType::kResume,
                                .epoch = epoch,
                                .wire_qpn = 0x8022,
                                .first_unacked_psn = kPeerPsn,
                                .expected_psn = kOurPsn};
  MigrationMessage resume_ack = resume;
  resume_ack.type = MigrationType::kResumeAck;
  return {
      {.type = MigrationType::kPause, .epoch = epoch},
      {.type = MigrationType::kNakStopped, .epoch = epoch},
      {.type = MigrationType::kMoved, .epoch = epoch, .wire_qpn = 0x4022, .location = kNewPlace},
      resume,
      resume_ack};
}

struct Forged : testing::Test {
  Script s{with_migration()};
  std::uint64_t dropped = 0;
  void SetUp() override { s.become_ferry(); }

  // `in` is dropped, counted once, and unheard of.
  void expect_dropped(const In& in, const std::string& what) {
    const auto before = s.status();
    s.inject(in);
    const auto after = s.status();
    EXPECT_EQ(after.counters.dropped_forged, before.counters.dropped_forged + 1) << what;
    EXPECT_EQ(int(after.migration), int(MigrationState::kNone)) << what;
    EXPECT_TRUE(after.peer == kPeer) << what;
    EXPECT_EQ(after.peer_wire_qpn, before.peer_wire_qpn) << what;
    EXPECT_EQ(after.unacked_psns, before.unacked_psns) << what;
    s.expect_silence();
    ++dropped;
  }
  static std::string name_of(const MigrationMessage& message) {
    return "type " + std::to_string(int(message.type));
  }
};

TEST_F(Forged, EveryByteOfAMessageIsUnderTheMac) {
  for (const auto& each : messages_of(1)) {
    const In good = message(each);
    for (std::size_t byte = 0; byte < good.payload.size(); ++byte) {
      In bad = good;
      bad.payload[byte] ^= std::byte{1};
      expect_dropped(bad, name_of(each) + " with byte " + std::to_string(byte) + " changed");
    }
  }
  EXPECT_EQ(dropped, 5 * wire::kMigrationPayload);
}

TEST_F(Forged, AMessageThatIsCutOffOrTooLongIsNone) {
  for (const auto& each : messages_of(1)) {
    const In good = message(each);
    for (std::size_t size = 0; size < good.payload.size(); ++size) {
      if (size % 4 != 0) continue;  // the wire pads to words
      In bad = good;
      bad.payload.resize(size);
      // An acknowledgement without a payload is a NAK with a reserved code: no migration message.
      if (each.type == MigrationType::kNakStopped && size == 0) continue;
      expect_dropped(bad, name_of(each) + " of " + std::to_string(size) + " bytes");
    }
    In bad = good;
    bad.payload.resize(good.payload.size() + 4);
    expect_dropped(bad, name_of(each) + " that is too long");
  }
}

// Who guesses the key, knows only one of the cookies, or has the MAC of another connection.
TEST_F(Forged, WithoutBothCookiesThereIsNoMac) {
  const std::pair<std::uint64_t, std::uint64_t> wrong[] = {
      {kPeerCookie, 0}, {0, kOurCookie}, {kOurCookie, kPeerCookie}, {kPeerCookie, kOurCookie + 1}};
  for (auto each : messages_of(1)) {
    each.source_qpn = kPeerQpn;
    for (const auto& [sender, receiver] : wrong) {
      each.mac = wire::mac_of(each, kOurQpn, wire::mac_key(sender, receiver));
      expect_dropped(message(each, false), name_of(each) + " with another key");
    }
    // For another QP of ours, between the same two hosts.
    each.mac = wire::mac_of(each, kOurQpn + 1, wire::mac_key(kPeerCookie, kOurCookie));
    expect_dropped(message(each, false), name_of(each) + " for another QP");
  }
}

// What we have sent ourselves is not the peer's word when it comes back, not even between two QPs
// with the same number.
TEST_F(Forged, OurOwnMessagesSentBack) {
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.qp->resume(kOurQpn, true, s.now);
  s.run();
  MigrationMessage own = s.expect_message(MigrationType::kResume);
  const auto before = s.status().counters.dropped_forged;
  s.inject(message(own, false));
  own.source_qpn = kPeerQpn;
  s.inject(message(own, false));
  EXPECT_EQ(s.status().counters.dropped_forged, before + 2);
  EXPECT_TRUE(s.status().resume_pending);
  EXPECT_TRUE(s.status().peer == kPeer);
}

// A trace of the peer's first two stops, played once more after them, from another place.
TEST_F(Forged, WhatWasRecordedEarlierAndIsReplayed) {
  std::vector<In> recorded;
  for (std::uint32_t epoch = 1; epoch <= 2; ++epoch) {
    for (const auto& each : messages_of(epoch)) {
      if (each.type == MigrationType::kMoved || each.type == MigrationType::kResumeAck) continue;
      MigrationMessage sent = each;
      sent.wire_qpn = kPeerQpn;
      recorded.push_back(message(sent));
      s.inject(recorded.back());
    }
    s.expect_message(MigrationType::kResumeAck);
  }
  const In last = recorded.back();
  recorded.pop_back();
  for (const auto& each : recorded) {
    expect_dropped(In(each).replayed_from(kNewPlace), "a replay from another place");
  }
  // The RESUME that holds may have been repeated: acknowledged to whom it names, and to nobody
  // else.
  s.inject(In(last).replayed_from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck);
  EXPECT_TRUE(s.status().peer == kPeer);
  for (const auto& each : messages_of(2)) {
    if (each.type != MigrationType::kResume) expect_dropped(message(each), name_of(each));
  }
}

// Who catches a message on its way and is first to send it does not become the peer by that.
TEST_F(Forged, TheSourceAddressOfAPacketIsNobodysWord) {
  const port::Endpoint attacker = endpoint(66, 61466);
  for (const auto& each : messages_of(1)) {
    if (each.type != MigrationType::kResume) continue;
    s.inject(message(each).from(kNewPlace).replayed_from(attacker));
    s.expect_message(MigrationType::kResumeAck, kNewPlace);
    EXPECT_TRUE(s.status().peer == kNewPlace);
  }
  s.qp->stop(s.now);
  s.forget_output();
  s.qp->resume(kOurQpn, true, s.now);
  s.run();
  s.expect_message(MigrationType::kResume, kNewPlace);
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 2,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = kOurPsn})
               .from(kNewPlace)
               .replayed_from(attacker));
  EXPECT_FALSE(s.status().resume_pending);
  EXPECT_TRUE(s.status().peer == kNewPlace);
}

// The stand-in believes no more than the QP that it stands for.
TEST_F(Forged, TowardsTheStandIn) {
  s.qp->stop(s.now);
  s.forget_output();
  std::size_t answers = 0;
  StandIn stand_in(
      [&](const port::Endpoint&, const wire::Header&, std::span<const std::byte>) { ++answers; });
  ASSERT_TRUE(stand_in.add(s.qp->stand_in_entry({}), s.now));
  std::uint64_t sent = 0;
  const auto inject = [&](const In& in) {
    wire::Packet packet{in.header, in.payload};
    packet.header.dest_qpn = kOurQpn;
    stand_in.handle_packet(packet, in.source, s.now);
    ++sent;
  };
  for (const auto& each : messages_of(1)) {
    const In good = message(each);
    for (std::size_t byte = 0; byte < good.payload.size(); ++byte) {
      In bad = good;
      bad.payload[byte] ^= std::byte{1};
      inject(bad);
    }
    In cut = good;
    cut.payload.resize(40);
    inject(cut);
  }
  EXPECT_EQ(stand_in.counters().dropped, sent);
  EXPECT_EQ(answers, 0u);
  // A second restart of the image that resumed at kNewPlace.
  inject(message(messages_of(1)[3]).from(kNewPlace));
  const auto before = stand_in.counters().dropped;
  EXPECT_EQ(before + 1, sent);
  inject(message(messages_of(1)[3]).from(endpoint(5)));
  EXPECT_EQ(stand_in.counters().dropped, before + 1);
}

}  // namespace
}  // namespace ferry::transport::test
