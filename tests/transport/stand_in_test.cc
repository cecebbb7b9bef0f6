#include "transport/migration/stand_in.h"

#include "transport/script.h"

namespace ferry::transport::test {
namespace {

const port::Endpoint kNewPlace = endpoint(9, 61441);

// A script whose QP was stopped, and the stand-in that has its socket.
class StandInTest : public testing::Test {
 protected:
  void start(const ScriptOptions& options, bool ferry) {
    script = std::make_unique<Script>(options);
    if (ferry) script->become_ferry();
    script->post_receive(1);
    script->inject(packet(Opcode::kRcSendOnly, 500, 1));
    script->expect_receive(1);
    script->qp->stop(script->now);
    script->forget_output();
    ASSERT_TRUE(stand_in.add(script->qp->stand_in_entry({}), now));
  }
  void inject(const In& in, std::uint32_t qpn = kOurQpn) {
    wire::Packet packet{in.header, in.payload};
    packet.header.dest_qpn = qpn;
    stand_in.handle_packet(packet, in.source, now);
  }
  void expect_silence() { EXPECT_TRUE(out.empty()); }
  Out next() {
    if (out.empty()) {
      ADD_FAILURE() << "no packet";
      return {};
    }
    Out first = out.front();
    out.pop_front();
    return first;
  }
  MigrationMessage expect_message(MigrationType type, const port::Endpoint& to = kPeer) {
    const Out packet = next();
    const auto parsed = wire::parse_migration(packet.payload);
    if (!parsed) {
      ADD_FAILURE() << "not a migration message";
      return {};
    }
    EXPECT_EQ(int(parsed->type), int(type));
    EXPECT_TRUE(packet.to == to);
    if (type > MigrationType::kHelloDone) {
      EXPECT_EQ(parsed->mac,
                wire::mac_of(*parsed, kPeerQpn, wire::mac_key(kOurCookie, kPeerCookie)));
    }
    return *parsed;
  }
  In hello(std::uint64_t echo) {
    return message({.type = MigrationType::kHello, .cookie = kPeerCookie, .echo = echo});
  }
  In resume(std::uint32_t epoch) {
    return message({.type = MigrationType::kResume,
                    .epoch = epoch,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = 501,
                    .expected_psn = 100});
  }

  std::unique_ptr<Script> script;
  std::deque<Out> out;
  StandIn stand_in{[this](const port::Endpoint& to, const wire::Header& header,
                          std::span<const std::byte> payload) {
    out.push_back({header, {payload.begin(), payload.end()}, to});
  }};
  Time now = seconds(1);
};

TEST_F(StandInTest, AnswersRequestsOfAFerryPeer) {
  start(with_migration(), true);
  inject(packet(Opcode::kRcSendOnly, 501, 1));
  EXPECT_EQ(expect_message(MigrationType::kNakStopped).epoch, 1u);
  inject(read_request(501, kRemote, 10));
  expect_message(MigrationType::kNakStopped);
  inject(hello(kOurCookie));
  expect_message(MigrationType::kNakStopped);
  EXPECT_EQ(stand_in.counters().naks_sent, 3u);
}

TEST_F(StandInTest, NeverStorms) {
  start(with_migration(), true);
  // All that another stand-in, or this one, could ever send.
  for (const MigrationType type :
       {MigrationType::kNakStopped, MigrationType::kMoved, MigrationType::kHelloAck,
        MigrationType::kHelloDone, MigrationType::kPause, MigrationType::kResumeAck}) {
    inject(message({.type = type, .epoch = 1, .cookie = kPeerCookie, .echo = kOurCookie}));
  }
  inject(nak(500, syndrome::kRnrNak));
  inject(ack(99));
  inject(packet(Opcode::kRcReadResponseOnly, 100, 10));
  expect_silence();
  stand_in.committed(kNewPlace, 5, 1, now);
  for (const MigrationType type :
       {MigrationType::kNakStopped, MigrationType::kMoved, MigrationType::kHelloAck}) {
    inject(message({.type = type, .epoch = 1, .cookie = kPeerCookie, .echo = kOurCookie}));
  }
  expect_silence();
}

TEST_F(StandInTest, TeachesItsCookieFirst) {
  start(with_migration(), true);
  inject(hello(0));
  const MigrationMessage answer = expect_message(MigrationType::kHelloAck);
  EXPECT_EQ(answer.cookie, kOurCookie);
  EXPECT_EQ(answer.echo, kPeerCookie);
  stand_in.committed(kNewPlace, 5, 1, now);
  inject(hello(0));
  expect_message(MigrationType::kHelloAck);
}

TEST_F(StandInTest, DropsStrangersAndUnknownQpns) {
  start(with_migration(), true);
  inject(packet(Opcode::kRcSendOnly, 501, 1).from(endpoint(3)));
  inject(packet(Opcode::kRcSendOnly, 501, 1), 0x77);
  MigrationMessage forged{.type = MigrationType::kResume, .epoch = 9, .wire_qpn = 1};
  inject(message(forged, false));
  expect_silence();
  EXPECT_EQ(stand_in.counters().dropped, 3u);
}

TEST_F(StandInTest, LearnsFromAResumeBeforeTheCommit) {
  start(with_migration(), true);
  inject(resume(1).from(endpoint(5)));
  inject(resume(3).from(endpoint(6)));
  inject(resume(2).from(endpoint(7)));
  expect_silence();
  EXPECT_EQ(stand_in.counters().dropped, 1u);  // the one of an earlier stop
  // That is where the peer is now; the same image started elsewhere is not the peer.
  inject(packet(Opcode::kRcSendOnly, 501, 1).from(endpoint(6)));
  expect_message(MigrationType::kNakStopped, endpoint(6));
  inject(packet(Opcode::kRcSendOnly, 501, 1));
  inject(resume(3).from(endpoint(8)));
  expect_silence();
  EXPECT_EQ(stand_in.counters().dropped, 3u);
  stand_in.committed(kNewPlace, 1, 1, now);
  inject(packet(Opcode::kRcSendOnly, 501, 1).from(endpoint(6)));
  expect_message(MigrationType::kMoved, endpoint(6));
}

TEST_F(StandInTest, AnswersMovedAfterTheCommit) {
  start(with_migration(), true);
  stand_in.committed(kNewPlace, 1, 1, now);
  inject(packet(Opcode::kRcSendOnly, 501, 1));
  const MigrationMessage moved = expect_message(MigrationType::kMoved);
  EXPECT_EQ(moved.epoch, 1u);
  EXPECT_EQ(moved.wire_qpn, 1u << 14 | kOurQpn);
  EXPECT_TRUE(moved.location == kNewPlace);
  inject(hello(kOurCookie));
  expect_message(MigrationType::kMoved);
  inject(resume(1).from(endpoint(5)));
  expect_message(MigrationType::kMoved, endpoint(5));
}

TEST_F(StandInTest, EndsWhenThePeerKnowsAndTheLimitHasPassed) {
  start(with_migration(), true);
  EXPECT_FALSE(stand_in.expired(now + seconds(1000)));
  stand_in.committed(kNewPlace, 1, 1, now);
  EXPECT_EQ(stand_in.next_deadline(), kNever);
  EXPECT_FALSE(stand_in.expired(now + seconds(1000)));
  stand_in.peer_knows(kOurQpn, now);
  EXPECT_EQ(stand_in.next_deadline(), now + seconds(60));
  EXPECT_FALSE(stand_in.expired(now + seconds(59)));
  EXPECT_TRUE(stand_in.expired(now + seconds(60)));
  stand_in.handle_timeout(now + seconds(60));
  inject(packet(Opcode::kRcSendOnly, 501, 1));
  expect_silence();
}

TEST_F(StandInTest, GivesAnUnmodifiedPeerRnrNaksUpToTheExpectedPsn) {
  start({}, false);
  inject(packet(Opcode::kRcSendOnly, 501, 1));
  const Out rnr = next();
  EXPECT_EQ(int(rnr.header.aeth.syndrome), int(syndrome::kRnrNak));
  EXPECT_EQ(rnr.header.psn, 501u);
  EXPECT_EQ(rnr.header.dest_qpn, kPeerQpn);
  EXPECT_TRUE(rnr.payload.empty());
  inject(packet(Opcode::kRcSendOnly, 500, 1));  // its own PSN, never a later one
  EXPECT_EQ(next().header.psn, 500u);
  inject(packet(Opcode::kRcSendOnly, 502, 1));
  inject(ack(99));
  inject(hello(0));
  expect_silence();
  stand_in.committed(kUs, 0, 1, now);
  inject(packet(Opcode::kRcSendOnly, 501, 1));
  expect_silence();
  EXPECT_TRUE(stand_in.expired(now + seconds(60)));
}

TEST_F(StandInTest, RefusesMalformedEntries) {
  start(with_migration(), true);
  auto entry = script->qp->stand_in_entry({});
  StandIn other([](auto&&...) {});
  for (std::size_t size = 0; size < entry.size(); ++size) {
    EXPECT_FALSE(other.add(std::span(entry).first(size), now));
  }
  auto longer = entry;
  longer.push_back({});
  EXPECT_FALSE(other.add(longer, now));
  entry[0] = std::byte{99};
  EXPECT_FALSE(other.add(entry, now));
  EXPECT_FALSE(other.add({}, now));
}

}  // namespace
}  // namespace ferry::transport::test
