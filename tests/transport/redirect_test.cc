#include "port/slot.h"
#include "transport/migration/stand_in.h"
#include "transport/script.h"

// A connection made after its peer has moved, to the name that the peer still has (docs/wire.md
// "Connections made after a move"): MOVED in answer to HELLO, and what a directory tells.
namespace ferry::transport::test {
namespace {

const port::Endpoint kNewPlace = endpoint(9, 61441), kThird = endpoint(7, 61445);
constexpr std::uint32_t kNewQpn = 1u << 14 | kPeerQpn, kThirdQpn = 5u << 14 | kPeerQpn;

MigrationMessage moved(std::uint32_t epoch, std::uint64_t echo = kOurCookie) {
  return {.type = MigrationType::kMoved,
          .epoch = epoch,
          .echo = echo,
          .wire_qpn = kNewQpn,
          .location = kNewPlace};
}
In redirect(const MigrationMessage& m) {
  return message(m, false);
}
In hello_ack() {
  return message({.type = MigrationType::kHelloAck, .cookie = kPeerCookie, .echo = kOurCookie});
}

class Redirect : public testing::Test {
 protected:
  Redirect() : s(with_migration()) {
    s.run();
    s.forget_output();  // HELLO
  }
  void expect_where_it_was() {
    s.expect_silence();
    EXPECT_TRUE(s.status().peer == kPeer);
    EXPECT_EQ(s.status().peer_wire_qpn, kPeerQpn);
    EXPECT_EQ(s.status().counters.dropped_forged, 1u);
  }
  Script s;
};

TEST_F(Redirect, HelloAndDataGoToTheNewPlace) {
  s.post(send(1, 1));
  s.expect_requests(100, 100);  // nobody is there
  s.inject(redirect(moved(1)));
  EXPECT_EQ(s.expect_message(MigrationType::kHello, kNewPlace).cookie, kOurCookie);
  const Out again = s.expect(Opcode::kRcSendOnly, 100);
  EXPECT_TRUE(again.to == kNewPlace);
  EXPECT_EQ(again.header.dest_qpn, kNewQpn);
  s.inject(hello_ack().from(kNewPlace), ack(100).from(kNewPlace));
  s.expect_message(MigrationType::kHelloDone, kNewPlace);
  s.expect_completion(1);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kFerry));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kNone));
}

TEST_F(Redirect, NeedsOurCookie) {
  s.inject(redirect(moved(1, kOurCookie + 1)));
  expect_where_it_was();
}

TEST_F(Redirect, NeedsTheAddressThatWeSendTo) {
  s.inject(redirect(moved(1)).from(endpoint(3)));
  expect_where_it_was();
}

TEST_F(Redirect, NeedsItsUdpPortToo) {
  s.inject(redirect(moved(1)).from(endpoint(2, 61440 + 9)));
  expect_where_it_was();
}

TEST_F(Redirect, NeedsTheQpnThatWeSendTo) {
  MigrationMessage other = moved(1);
  other.source_qpn = kPeerQpn + 1;
  s.inject(redirect(other));
  expect_where_it_was();
}

TEST_F(Redirect, NeedsAPlaceThatCanBe) {
  MigrationMessage other = moved(1);
  other.wire_qpn = kThirdQpn;  // of another slot than the UDP port's
  s.inject(redirect(other));
  expect_where_it_was();
  other = moved(1);
  other.wire_qpn = kNewQpn + 1;  // of another QP
  s.inject(redirect(other));
  EXPECT_TRUE(s.status().peer == kPeer);
  EXPECT_EQ(s.status().counters.dropped_forged, 2u);
}

TEST_F(Redirect, IsNotForAPeerThatHasAnswered) {
  s.inject(hello_ack());
  s.expect_message(MigrationType::kHelloDone);
  s.inject(redirect(moved(1)));
  expect_where_it_was();
}

TEST_F(Redirect, AReplayChangesNothing) {
  s.inject(redirect(moved(1)));
  s.expect_message(MigrationType::kHello, kNewPlace);
  // The same again, from the old place and as if from the new one.
  s.inject(redirect(moved(1)), redirect(moved(1)).from(kNewPlace));
  s.expect_silence();
  EXPECT_TRUE(s.status().peer == kNewPlace);
  EXPECT_EQ(s.status().counters.dropped_forged, 2u);
}

TEST_F(Redirect, GoesOnAlongAChainOfMovesAndNeverBack) {
  s.inject(redirect(moved(2)));
  s.expect_message(MigrationType::kHello, kNewPlace);
  MigrationMessage next = moved(3);
  next.wire_qpn = kThirdQpn;
  next.location = kThird;
  s.inject(redirect(next).from(kNewPlace));
  s.expect_message(MigrationType::kHello, kThird);
  s.inject(redirect(moved(2)).from(kThird));  // older
  s.expect_silence();
  EXPECT_TRUE(s.status().peer == kThird);
  EXPECT_EQ(s.status().peer_wire_qpn, kThirdQpn);
}

TEST_F(Redirect, AlsoWhenHelloHadBeenGivenUp) {
  s.advance(seconds(10));
  s.forget_output();
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnmodified));
  s.inject(redirect(moved(1)));
  s.expect_message(MigrationType::kHello, kNewPlace);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnknown));
}

TEST_F(Redirect, RetriesBeginAnew) {
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.advance(milliseconds((1 + 2 + 4) * 68));  // three of three retries are spent
  s.forget_output();
  s.inject(redirect(moved(1)));
  for (const int times : {1, 2, 4, 4}) {
    EXPECT_EQ(int(s.status().state), int(QpState::kRts)) << times;
    s.advance(milliseconds(times * 68));
  }
  EXPECT_EQ(int(s.status().state), int(QpState::kError));
  s.forget_output();
  s.expect_completion(1, Status::kRetryExceeded);
}

// The peer's QP has another slot in its name than in the one that we were given: rdma_cm names
// wire QPNs.
TEST_F(Redirect, MacsAreMadeWithTheNameThatThePeerGivesItself) {
  constexpr std::uint32_t kItsName = 3u << 14 | kPeerQpn;
  MigrationMessage ack_message{.type = MigrationType::kHelloAck,
                               .source_qpn = kItsName,
                               .cookie = kPeerCookie,
                               .echo = kOurCookie};
  s.inject(redirect(ack_message));
  s.expect_message(MigrationType::kHelloDone);
  EXPECT_EQ(s.status().peer_qpn, kItsName);
  MigrationMessage pause{.type = MigrationType::kPause, .source_qpn = kItsName, .epoch = 1};
  pause.mac = wire::mac_of(pause, kOurQpn, wire::mac_key(kPeerCookie, kOurCookie));
  s.inject(message(pause, false));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  s.forget_output();
}

// --- A directory

TEST_F(Redirect, ADirectoryIsAskedWhenNobodyAnswers) {
  s.advance(milliseconds(15));  // four repetitions
  EXPECT_TRUE(s.host.sought.empty());
  s.advance(milliseconds(16));
  ASSERT_EQ(s.host.sought.size(), 1u);
  EXPECT_TRUE(s.host.sought.front() == kPeer);
  s.forget_output();
  s.qp->located(kPeer, kNewPlace, 1, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kHello, kNewPlace).cookie, kOurCookie);
  EXPECT_EQ(s.status().peer_wire_qpn, kNewQpn);
}

TEST_F(Redirect, ADirectoryIsNotBelievedWhatIsOlderOrOfAnotherName) {
  s.inject(redirect(moved(2)));
  s.expect_message(MigrationType::kHello, kNewPlace);
  s.qp->located(kPeer, kThird, 1, s.now);
  s.qp->located(endpoint(2, 61441), kThird, 9, s.now);
  s.qp->located(kNewPlace, kThird, 9, s.now);
  EXPECT_TRUE(s.status().peer == kNewPlace);
  s.qp->located(kPeer, kThird, 3, s.now);
  EXPECT_TRUE(s.status().peer == kThird);
  s.run();
  s.expect_message(MigrationType::kHello, kThird);
}

TEST(Located, APausedQpProbesThere) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.advance(seconds(2));  // probes, which nobody answers
  s.forget_output();
  ASSERT_FALSE(s.host.sought.empty());
  EXPECT_TRUE(s.host.sought.back() == kPeer);
  s.qp->located(kPeer, kNewPlace, 0, s.now);  // before the stop that is known
  s.run();
  s.expect_silence();
  s.qp->located(kPeer, kNewPlace, 1, s.now);
  s.advance(Time(0));
  s.expect_message(MigrationType::kHello, kNewPlace);
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 1,
                    .wire_qpn = kNewQpn,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = kOurPsn})
               .from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
}

TEST(Located, AnUnansweredResumeIsSentThere) {
  Script s(with_migration());
  s.become_ferry();
  s.qp->stop(s.now);
  s.qp->resume(kOurQpn, false, s.now);
  s.advance(seconds(1));
  s.forget_output();
  ASSERT_FALSE(s.host.sought.empty());
  s.qp->located(kPeer, kNewPlace, 4, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume, kNewPlace).epoch, 1u);
}

TEST(Located, WhoAnswersIsNotSought) {
  Script s(with_migration());
  s.become_ferry();
  for (unsigned i = 0; i < 20; ++i) {
    s.post(send(i, 1));
    s.advance(milliseconds(68));  // lost, and sent again
    s.inject(ack(100 + i));
    s.forget_output();
    s.expect_completion(i);
  }
  EXPECT_TRUE(s.host.sought.empty());
}

// --- What the stand-in answers

class RedirectingStandIn : public testing::Test {
 protected:
  // The RNIC was opened in slot 2 of kPeer's address and is in slot 1 at kNewPlace.
  static constexpr std::uint32_t kName = 2u << 14 | 0x77;
  const port::Endpoint old_place = endpoint(2, 61442);
  void SetUp() override { stand_in.serve_slot(old_place, old_place); }
  void give(const MigrationMessage& m, const port::Endpoint& from,
            Opcode opcode = Opcode::kMigration) {
    std::array<std::byte, wire::kMigrationPayload> payload;
    wire::encode(m, payload);
    wire::Header header;
    header.opcode = opcode;
    header.dest_qpn = kName;
    stand_in.handle_packet({header, payload}, from, now);
  }
  MigrationMessage hello() {
    return {.type = MigrationType::kHello, .source_qpn = 0x9011, .cookie = 0xC0FFEE};
  }
  std::deque<Out> out;
  StandIn stand_in{[this](const port::Endpoint& to, const wire::Header& header,
                          std::span<const std::byte> payload) {
    out.push_back({header, {payload.begin(), payload.end()}, to});
  }};
  Time now = seconds(1);
};

TEST_F(RedirectingStandIn, TellsThePlaceInNoMoreBytesThanItWasAsked) {
  give(hello(), endpoint(4, 61443));  // the asker is in slot 3 now, and was opened in slot 2
  EXPECT_TRUE(out.empty());           // before the commit
  stand_in.committed(kNewPlace, 1, 3, now);
  give(hello(), endpoint(4, 61443));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(out[0].to == endpoint(4, 61443));
  EXPECT_EQ(out[0].header.dest_qpn, 3u << 14 | 0x1011u);
  EXPECT_EQ(out[0].payload.size(), wire::kMigrationPayload);
  const auto answer = wire::parse_migration(out[0].payload);
  ASSERT_TRUE(answer);
  EXPECT_EQ(int(answer->type), int(MigrationType::kMoved));
  EXPECT_EQ(answer->echo, 0xC0FFEEu);
  EXPECT_EQ(answer->epoch, 3u);
  EXPECT_EQ(answer->source_qpn, kName);
  EXPECT_EQ(answer->wire_qpn, 1u << 14 | 0x77u);
  EXPECT_TRUE(answer->location == kNewPlace);
  EXPECT_EQ(stand_in.counters().redirected, 1u);
}

TEST_F(RedirectingStandIn, AnswersNothingButHello) {
  stand_in.committed(kNewPlace, 1, 3, now);
  for (const MigrationType type :
       {MigrationType::kHelloAck, MigrationType::kHelloDone, MigrationType::kPause,
        MigrationType::kResume, MigrationType::kResumeAck, MigrationType::kMoved}) {
    MigrationMessage m = hello();
    m.type = type;
    give(m, endpoint(4, 61443));
  }
  give(hello(), endpoint(4, 61443), Opcode::kRcSendOnly);
  give(hello(), endpoint(4, 40000));  // nobody of ours: every one of us sends from its slot's port
  EXPECT_TRUE(out.empty());
}

TEST_F(RedirectingStandIn, FollowsTheProcessFurther) {
  stand_in.committed(kNewPlace, 1, 3, now);
  stand_in.committed(kThird, 5, 4, now);
  stand_in.committed(kNewPlace, 1, 3, now);  // late
  give(hello(), endpoint(4, 61443));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(wire::parse_migration(out[0].payload)->location == kThird);
}

TEST_F(RedirectingStandIn, ForwardsDatagramsToQpsThatItNeverSaw) {
  stand_in.committed(kNewPlace, 1, 3, now);
  wire::Header datagram;
  datagram.opcode = Opcode::kUdSendOnly;
  datagram.dest_qpn = kName;
  datagram.deth = {0x1234, 0x9011};
  stand_in.handle_packet({datagram, {}}, endpoint(4, 61443), now);
  ASSERT_EQ(out.size(), 2u);  // and a hint
  EXPECT_TRUE(out[0].to == kNewPlace);
  EXPECT_EQ(int(out[0].header.opcode), int(Opcode::kMovedSendOnly));
  EXPECT_EQ(out[0].header.dest_qpn, 1u << 14 | 0x77u);
  EXPECT_EQ(out[0].header.origin.qpn, 0x9011u);
  const auto hint = wire::parse_migration(out[1].payload);
  ASSERT_TRUE(hint);
  EXPECT_EQ(hint->echo, 0u);
  EXPECT_EQ(hint->source_qpn, kName);
  EXPECT_TRUE(hint->location.address == old_place.address);
  out.clear();
  give({.type = MigrationType::kLocate, .cookie = 5, .wire_qpn = 0xC011}, endpoint(4, 61443));
  ASSERT_EQ(out.size(), 1u);
  const auto answer = wire::parse_migration(out[0].payload);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->echo, 5u);
  EXPECT_EQ(answer->wire_qpn, 1u << 14 | 0x77u);
  EXPECT_TRUE(answer->location == kNewPlace);
}

}  // namespace
}  // namespace ferry::transport::test
