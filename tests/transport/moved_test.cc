#include "transport/script.h"

namespace ferry::transport::test {
namespace {

const port::Endpoint kNewPlace = endpoint(9, 61441);

In moved(std::uint32_t epoch) {
  return message(
      {.type = MigrationType::kMoved, .epoch = epoch, .wire_qpn = 0x4022, .location = kNewPlace});
}

TEST(Moved, PausesAndProbesTheNewPlaceAtOnce) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(moved(1));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  s.advance(Time(0));
  s.expect_message(MigrationType::kHello, kNewPlace);
  EXPECT_EQ(s.status().peer_wire_qpn, 0x4022u);
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 1,
                    .wire_qpn = 0x4022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100})
               .from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.expect_requests(100, 100);
  s.inject(ack(100).from(kNewPlace));
  s.expect_completion(1);
}

TEST(Moved, LateChangesNothing) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 2,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100})
               .from(endpoint(5)));
  s.expect_message(MigrationType::kResumeAck, endpoint(5));
  s.inject(moved(1), moved(2));
  EXPECT_TRUE(s.status().peer == endpoint(5));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kNone));
}

TEST(Moved, NeedsItsMac) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message({.type = MigrationType::kMoved, .epoch = 1, .location = kNewPlace}, false));
  EXPECT_TRUE(s.status().peer == kPeer);
  EXPECT_EQ(s.status().counters.dropped_forged, 1u);
}

TEST(Moved, ProbeIsAnsweredByAResumeAtTheNewPlace) {
  Script s(with_migration());
  s.become_ferry();
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(kNewPlace, 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  s.inject(message({.type = MigrationType::kHello, .cookie = kPeerCookie, .echo = kOurCookie}));
  s.expect_message(MigrationType::kResume);
  s.expect_message(MigrationType::kHelloAck);
}

// Nobody acknowledged our RESUME until the Paused limit: it is not repeated any more. Then a late
// MOVED tells where the peer has gone, and the first RESUME there is lost. The peer drops our
// probes, since it knows us at the old place only.
TEST(Moved, ResumeIsRepeatedAtTheNewPlaceAlsoAfterTheLimit) {
  Script s(with_migration());
  s.become_ferry();
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(endpoint(7, 61441), 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.advance(s.options.settings.paused_limit + seconds(1));
  s.forget_output();
  s.inject(moved(1));
  s.expect_message(MigrationType::kResume, kNewPlace);
  s.advance(s.options.settings.resume_first);
  s.expect_message(MigrationType::kHello, kNewPlace);
  s.expect_message(MigrationType::kResume, kNewPlace);
}

}  // namespace
}  // namespace ferry::transport::test
