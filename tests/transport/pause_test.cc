#include "transport/script.h"

// What a peer of a stopped QP does: Paused (docs/wire.md "Paused"), and what a Stopped QP itself
// does.
namespace ferry::transport::test {
namespace {

In pause(std::uint32_t epoch) {
  return message({.type = MigrationType::kPause, .epoch = epoch});
}
In nak_stopped(std::uint32_t epoch) {
  return message({.type = MigrationType::kNakStopped, .epoch = epoch});
}
In resume(std::uint32_t epoch, std::uint32_t expected) {
  return message({.type = MigrationType::kResume,
                  .epoch = epoch,
                  .wire_qpn = kPeerQpn,
                  .first_unacked_psn = kPeerPsn,
                  .expected_psn = expected});
}

TEST(Paused, ByPauseNewRequestsWaitAndTimersAreOff) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 2 * kMtu));
  s.expect_requests(100, 101);
  EXPECT_GT(s.host.accounted(), 0);
  s.inject(pause(1));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  EXPECT_EQ(s.host.accounted(), 0);
  s.post(send(2, 1));
  s.expect_silence();
  s.advance(milliseconds(9));  // no ACK timeout, no probe yet
  s.expect_silence();
  s.inject(resume(1, 100));
  s.expect_message(MigrationType::kResumeAck);
  s.expect_requests(100, 102);
  s.inject(ack(102));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Paused, ByNakStoppedWhichAcknowledgesNothing) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  In nak = nak_stopped(1);
  nak.header.psn = 100;
  s.inject(nak);
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  EXPECT_EQ(s.status().unacked_psns, 1u);
  s.inject(resume(1, 101));
  s.expect_message(MigrationType::kResumeAck);
  s.expect_completion(1);  // RESUME acknowledges
}

TEST(Paused, CancelsAnRnrWaitAndRestoresCounts) {
  ScriptOptions options = with_migration();
  options.rts.rnr_retry = 1;
  Script s(options);
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(nak(100, syndrome::kRnrNak | 1));
  s.inject(pause(1));
  s.advance(milliseconds(5));
  s.expect_silence();
  s.inject(resume(1, 100));
  s.expect_message(MigrationType::kResumeAck);
  s.expect_requests(100, 100);
  s.inject(nak(100, syndrome::kRnrNak | 1));  // the one retry is there again
  s.advance(microseconds(10));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
}

TEST(Paused, ProbesWithBackOffByHelloWithTheEcho) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(pause(1));
  for (const int wait : {10, 10, 20, 40, 80, 160, 320, 500, 500}) {
    s.advance(milliseconds(wait) - Time(1));
    s.expect_silence();
    s.advance(Time(1));
    EXPECT_EQ(s.expect_message(MigrationType::kHello).echo, kPeerCookie);
  }
}

TEST(Paused, LimitIsAbsolute) {
  ScriptOptions options = with_migration();
  options.settings.paused_limit = seconds(2);
  Script s(options);
  s.become_ferry();
  s.post(send(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.inject(pause(1));
  s.advance(milliseconds(1500));
  s.inject(pause(1), nak_stopped(1));  // does not extend it
  s.advance(milliseconds(499));
  EXPECT_TRUE(s.host.sent.empty());
  s.advance(milliseconds(1));
  s.expect_completion(1, Status::kRetryExceeded);
  s.expect_completion(2, Status::kFlush);
  s.forget_output();
  s.advance(seconds(10));
  s.expect_silence();
}

TEST(Paused, WithNothingToSendTheLimitOnlySilences) {
  ScriptOptions options = with_migration();
  options.settings.paused_limit = seconds(2);
  Script s(options);
  s.become_ferry();
  s.inject(pause(1));
  s.advance(seconds(10));
  s.forget_output();
  EXPECT_EQ(int(s.qp->state()), int(QpState::kRts));
  EXPECT_EQ(s.qp->next_deadline(), kNever);
  s.inject(resume(1, 100));  // late, and still heard
  s.expect_message(MigrationType::kResumeAck);
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
  s.inject(pause(2));
  s.advance(seconds(10));
  s.forget_output();
  s.post(send(2, 1));
  s.advance(Time(0));
  s.expect_completion(2, Status::kRetryExceeded);
}

TEST(Paused, EpochsAndMacsAreChecked) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(pause(3));
  s.inject(resume(3, 100));
  s.expect_message(MigrationType::kResumeAck);
  const auto forged = s.status().counters.dropped_forged;
  MigrationMessage unsigned_pause{.type = MigrationType::kPause, .epoch = 9};
  s.inject(pause(2), pause(3), nak_stopped(3), message(unsigned_pause, false),
           message({.type = MigrationType::kPause, .source_qpn = 0x99, .epoch = 9}));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kNone));
  EXPECT_EQ(s.status().counters.dropped_forged, forged + 5);
  s.inject(pause(4));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
}

// A NAK_STOPPED says at least that the peer knows us: the handshake is hurried, before retries run
// out.
TEST(Paused, NeedsAFerryPeerAndAsksAtOnce) {
  Script s(with_migration());
  s.run();
  s.forget_output();
  s.inject(pause(1), nak_stopped(1));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kNone));
  s.expect_message(MigrationType::kHello);
  s.inject(nak_stopped(1).from(endpoint(3)));
  s.expect_silence();
  s.inject(message({.type = MigrationType::kHelloAck, .cookie = kPeerCookie, .echo = kOurCookie}));
  s.expect_message(MigrationType::kHelloDone);
  s.inject(nak_stopped(1));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
}

TEST(Paused, LateTruthIsHeard) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.post_receive(5);
  s.inject(pause(1), ack(100), packet(Opcode::kRcSendOnly, 500, 4).asks_ack());
  s.expect_completion(1);
  s.expect_receive(5);
  s.expect_silence();
  EXPECT_EQ(s.status().expected_psn, 501u);
}

TEST(Stopped, SendsPauseOnceAndPostingOnlyQueues) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 3 * kMtu));
  s.expect_requests(100, 102);
  s.qp->stop(s.now);
  EXPECT_EQ(s.expect_message(MigrationType::kPause).epoch, 1u);
  EXPECT_EQ(s.status().unacked_psns, 3u);
  EXPECT_EQ(s.host.accounted(), 0);
  s.post(send(2, 1));
  s.qp->stop(s.now);
  s.advance(seconds(100));
  s.expect_silence();
  EXPECT_EQ(s.status().epoch, 1u);
}

TEST(Stopped, AnswersRequestsAndProbesAndNothingElse) {
  Script s(with_migration());
  s.become_ferry();
  s.post_receive(1);
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.inject(packet(Opcode::kRcSendOnly, 500, 10).asks_ack());
  EXPECT_EQ(s.expect_message(MigrationType::kNakStopped).epoch, 1u);
  s.inject(message({.type = MigrationType::kHello, .cookie = kPeerCookie, .echo = kOurCookie}));
  s.expect_message(MigrationType::kNakStopped);
  // One that has not learnt our cookie could not check the MAC of a NAK_STOPPED.
  s.inject(message({.type = MigrationType::kHello, .cookie = kPeerCookie}));
  EXPECT_EQ(s.expect_message(MigrationType::kHelloAck).cookie, kOurCookie);
  s.inject(nak_stopped(1), pause(1), resume(1, 100), ack(99),
           message({.type = MigrationType::kHelloAck, .cookie = kPeerCookie, .echo = kOurCookie}),
           packet(Opcode::kRcSendOnly, 500, 10).from(endpoint(3)));
  s.expect_silence();
  EXPECT_EQ(s.status().expected_psn, 500u);
  EXPECT_EQ(s.host.receives_posted(), 1u);
}

TEST(Stopped, QpsThatAreNotConnectedHaveNoEntry) {
  Script s;
  s.qp->reset();
  s.qp->stop(s.now);
  EXPECT_TRUE(s.qp->stand_in_entry({}).empty());
  s.qp->resume(0x99, false, s.now);
  s.run();
  s.expect_silence();
  EXPECT_EQ(s.status().wire_qpn, 0x99u);
  Script e;
  e.qp->to_error(e.now);
  e.qp->stop(e.now);
  EXPECT_TRUE(e.qp->stand_in_entry({}).empty());
  EXPECT_EQ(e.qp->post_send({.wr_id = 1}), 0);
  e.expect_completion(1, Status::kFlush);
}

// An idle QP's stop may be made up for later: only its epoch tells of it.
TEST(Stopped, UntoldSaysNothingAndIsAsTheEntryAheadOfItSays) {
  Script s(with_migration());
  s.become_ferry();
  s.post_receive(7);
  s.inject(packet(Opcode::kRcSendOnly, 500, 100).asks_ack());
  s.expect_ack(500);
  s.expect_receive(7);
  ASSERT_TRUE(s.qp->idle());
  const auto ahead = s.qp->stand_in_entry({});
  s.qp->stop_untold();
  s.run();
  s.expect_silence();
  EXPECT_EQ(s.status().epoch, 1u);
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kStopped));
  EXPECT_EQ(s.qp->stand_in_entry({}), ahead);
  s.qp->resume(kOurQpn, false, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume).epoch, 1u);
}

TEST(Stopped, IsNotIdleWithSomethingUnderWay) {
  Script s(with_migration());
  EXPECT_FALSE(s.qp->idle());  // its peer is of unknown kind
  s.become_ferry();
  EXPECT_TRUE(s.qp->idle());
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  EXPECT_FALSE(s.qp->idle());
  s.inject(ack(100));
  s.expect_completion(1);
  EXPECT_TRUE(s.qp->idle());
  s.post_receive(7);
  s.inject(packet(Opcode::kRcSendFirst, 500));
  EXPECT_FALSE(s.qp->idle());
  s.inject(packet(Opcode::kRcSendLast, 501).asks_ack());
  s.expect_ack(501);
  s.expect_receive(7);
  EXPECT_TRUE(s.qp->idle());
  s.inject(pause(1));
  EXPECT_FALSE(s.qp->idle());
  s.inject(resume(1, 101));
  s.expect_message(MigrationType::kResumeAck);
  EXPECT_TRUE(s.qp->idle());
}

TEST(Stopped, AQpOfUcIsNeverIdle) {
  ScriptOptions options = with_migration();
  options.limits.type = ConnectionType::kUc;
  Script s(options);
  s.become_ferry();
  EXPECT_FALSE(s.qp->idle());
}

TEST(Stopped, AConnectionThatIsMadeWhileStoppedSpeaksLater) {
  Script s(with_migration());
  s.run();
  s.forget_output();
  s.qp->reset();
  s.qp->stop(s.now);
  s.qp->init();
  s.qp->to_rtr(s.options.rtr, s.now);
  s.qp->to_rts(s.options.rts, s.now);
  s.post(send(1, 1));
  s.advance(seconds(1));
  s.expect_silence();
  s.qp->resume(kOurQpn, false, s.now);
  s.run();
  s.expect_message(MigrationType::kHello);
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
