#include "transport/script.h"

// The three-way handshake by which two QPs find out that both speak the migration protocol
// (docs/wire.md "HELLO").
namespace ferry::transport::test {
namespace {

In hello(std::uint64_t echo) {
  return message({.type = MigrationType::kHello, .cookie = kPeerCookie, .echo = echo});
}
In hello_ack(std::uint64_t echo) {
  return message({.type = MigrationType::kHelloAck, .cookie = kPeerCookie, .echo = echo});
}
In hello_done(std::uint64_t echo) {
  return message({.type = MigrationType::kHelloDone, .cookie = kPeerCookie, .echo = echo});
}

TEST(Hello, AsTheFirstSide) {
  Script s(with_migration());
  s.run();
  const MigrationMessage out = s.expect_message(MigrationType::kHello);
  EXPECT_EQ(out.cookie, kOurCookie);
  EXPECT_EQ(out.echo, 0u);
  s.inject(hello_ack(kOurCookie));
  const MigrationMessage done = s.expect_message(MigrationType::kHelloDone);
  EXPECT_EQ(done.cookie, kOurCookie);
  EXPECT_EQ(done.echo, kPeerCookie);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kFerry));
  s.advance(seconds(10));
  s.expect_silence();
}

TEST(Hello, AsTheSecondSide) {
  ScriptOptions options = with_migration();
  options.to_rts = false;  // answered in RTR already
  Script s(options);
  s.run();
  s.forget_output();
  s.inject(hello(0));
  EXPECT_EQ(s.expect_message(MigrationType::kHelloAck).echo, kPeerCookie);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnknown));  // no valid echo yet
  s.inject(hello_done(kOurCookie));
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kFerry));
}

TEST(Hello, ConsumesNoPsnAndLooksStale) {
  Script s(with_migration());
  s.run();
  const Out out = s.expect(Opcode::kMigration, 499);  // ePSN - 1
  EXPECT_EQ(out.header.dest_qpn, kPeerQpn);
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(hello_ack(kOurCookie), ack(100));
  s.expect_message(MigrationType::kHelloDone);
  s.expect_completion(1);
  EXPECT_EQ(s.status().expected_psn, 500u);
}

TEST(Hello, IsRepeatedWithBackOffAndThenThePeerIsUnmodified) {
  ScriptOptions options = with_migration();
  options.settings.hello_repeats = 4;
  Script s(options);
  s.run();
  s.expect_message(MigrationType::kHello);
  for (const int wait : {1, 2, 4}) {
    s.advance(milliseconds(wait) - Time(1));
    s.expect_silence();
    s.advance(Time(1));
    s.expect_message(MigrationType::kHello);
  }
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnknown));
  s.advance(seconds(2));
  s.expect_silence();
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnmodified));
  // It was only late.
  s.inject(hello(0));
  s.expect_message(MigrationType::kHelloAck);
  s.inject(hello_done(kOurCookie));
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kFerry));
}

TEST(Hello, PrepareAsksAgain) {
  ScriptOptions options = with_migration();
  options.settings.hello_repeats = 1;
  Script s(options);
  s.advance(seconds(1));
  s.expect_message(MigrationType::kHello);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnmodified));
  s.qp->prepare(s.now);
  s.run();
  s.expect_message(MigrationType::kHello);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnknown));
  s.inject(hello_ack(kOurCookie));
  s.expect_message(MigrationType::kHelloDone);
  s.qp->prepare(s.now);  // known: nothing to ask
  s.run();
  s.expect_silence();
}

TEST(Hello, PrepareOverAndOverDoesNotStartTheRepeatsAnew) {
  ScriptOptions options = with_migration();
  options.settings.hello_repeats = 3;
  Script s(options);
  for (int i = 0; i < 20; ++i) {
    s.qp->prepare(s.now);
    s.run();
    s.advance(microseconds(500));
    if (s.status().peer_class == PeerClass::kUnmodified) break;
  }
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnmodified));
  s.forget_output();
}

TEST(Hello, IsAcceptedFromTheConfiguredAddressAndQpnOnlyAndWithTheRightEcho) {
  Script s(with_migration());
  s.run();
  s.forget_output();
  MigrationMessage other{.type = MigrationType::kHelloAck,
                         .source_qpn = 0x99,
                         .cookie = kPeerCookie,
                         .echo = kOurCookie};
  s.inject(hello_ack(kOurCookie).from(endpoint(3)), hello_ack(kOurCookie).from(endpoint(2, 5000)),
           message(other), hello_ack(kOurCookie + 1), hello_ack(0), hello_done(0),
           hello(0).from(endpoint(3)));
  s.expect_silence();
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnknown));
  EXPECT_EQ(s.status().counters.dropped_forged, 7u);
  // Once known, the cookie stays.
  s.inject(hello_ack(kOurCookie));
  s.expect_message(MigrationType::kHelloDone);
  s.inject(message({.type = MigrationType::kHelloAck, .cookie = 0x666, .echo = kOurCookie}));
  s.expect_silence();
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);  // still signed with the first
}

TEST(Hello, GarbageInAMigrationPacketIsDropped) {
  Script s(with_migration());
  s.run();
  s.forget_output();
  s.inject(packet(Opcode::kMigration, 0, 0), packet(Opcode::kMigration, 0, 80),
           packet(Opcode::kMigration, 0, 1000));
  s.expect_silence();
  EXPECT_EQ(s.status().counters.dropped_forged, 3u);
}

TEST(Hello, SwitchedOffTheProtocolDoesNotExist) {
  Script s;
  s.advance(seconds(5));
  s.expect_silence();
  s.inject(hello(0), hello_ack(kOurCookie), message({.type = MigrationType::kPause, .epoch = 1}),
           message({.type = MigrationType::kNakStopped, .epoch = 1}));
  s.expect_silence();
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kNone));
}

TEST(Hello, ANewIncarnationStartsAnew) {
  Script s(with_migration());
  s.become_ferry();
  s.qp->reset();
  s.qp->init();
  s.qp->to_rtr(s.options.rtr, s.now);
  EXPECT_EQ(int(s.status().peer_class), int(PeerClass::kUnknown));
  EXPECT_EQ(s.status().epoch, 0u);
  s.run();
  s.expect_message(MigrationType::kHello);
}

}  // namespace
}  // namespace ferry::transport::test
