#include "transport/script.h"

// RESUME and RESUME_ACK, from both sides (docs/wire.md "RESUME").
namespace ferry::transport::test {
namespace {

const port::Endpoint kNewPlace = endpoint(9, 61441);
constexpr std::uint32_t kNewQpn = 0x4011;

MigrationMessage resume(std::uint32_t epoch, std::uint32_t expected,
                        std::uint32_t first_unacked = kPeerPsn) {
  return {.type = MigrationType::kResume,
          .epoch = epoch,
          .wire_qpn = 0x8022,
          .first_unacked_psn = first_unacked,
          .expected_psn = expected};
}
In resume_ack(std::uint32_t epoch, std::uint32_t expected) {
  MigrationMessage m = resume(epoch, expected);
  m.type = MigrationType::kResumeAck;
  m.wire_qpn = kPeerQpn;
  return message(m);
}

TEST(Resume, UpdatesLocationAndGoesBack) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.post(send(2, 3 * kMtu));
  s.expect_requests(100, 103);
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.inject(message(resume(1, 102)).from(kNewPlace));
  const MigrationMessage out = s.expect_message(MigrationType::kResumeAck, kNewPlace);
  EXPECT_EQ(out.epoch, 1u);
  EXPECT_EQ(out.expected_psn, 500u);
  s.expect_completion(1);
  const Out again = s.expect(Opcode::kRcSendMiddle, 102);
  EXPECT_TRUE(again.to == kNewPlace);
  EXPECT_EQ(again.header.dest_qpn, 0x8022u);
  s.expect(Opcode::kRcSendLast, 103);
  // The old place is not the peer any more.
  s.inject(ack(103));
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(ack(103).from(kNewPlace));
  s.expect_completion(2);
}

TEST(Resume, NeedsNoPauseBeforeIt) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(message(resume(1, 100)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.expect_requests(100, 100);
  s.inject(ack(100).from(kNewPlace));
  s.expect_completion(1);
}

TEST(Resume, NeverCompletesARead) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.post(read(2, 3 * kMtu));
  s.post(send(3, 1));
  s.expect_requests(100, 101);
  s.expect_requests(104, 104);
  s.inject(packet(Opcode::kRcReadResponseFirst, 101));
  s.expect_completion(1);
  // The peer has seen everything; the rest of the READ is asked for again under its PSNs.
  s.inject(message(resume(1, 105)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  const Out again = s.expect(Opcode::kRcReadRequest, 102);
  EXPECT_EQ(again.header.reth.dma_length, 2 * kMtu);
  s.expect_requests(104, 104);
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(packet(Opcode::kRcReadResponseFirst, 102).from(kNewPlace),
           packet(Opcode::kRcReadResponseLast, 103).from(kNewPlace), ack(104).from(kNewPlace));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(Resume, DiscardsUnfinishedResponses) {
  Script s(with_migration());
  s.become_ferry();
  int room = 2;
  s.host.port_is_full = [&] { return room-- <= 0; };
  s.inject(read_request(500, kRemote, 4 * kMtu));
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseMiddle, 501);
  room = 100;
  s.inject(message(resume(1, 100)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.expect_silence();
  s.inject(read_request(502, kRemote + 2 * kMtu, 2 * kMtu).from(kNewPlace));
  s.expect(Opcode::kRcReadResponseFirst, 502);
  s.expect(Opcode::kRcReadResponseLast, 503);
}

TEST(Resume, TwiceIsAcknowledgedTwice) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message(resume(1, 100)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.inject(message(resume(1, 100)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  // The same image restarted a second time, elsewhere.
  s.inject(message(resume(1, 100)).from(endpoint(7)));
  s.expect_silence();
  EXPECT_TRUE(s.status().peer == kNewPlace);
}

TEST(Resume, OfAnOldEpochIsDropped) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message(resume(5, 100)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.inject(message(resume(4, 100)).from(kPeer));
  s.expect_silence();
  EXPECT_TRUE(s.status().peer == kNewPlace);
}

TEST(Resume, WithImpossiblePsnsIsForged) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1));
  s.expect_receive(1);
  s.inject(message(resume(1, 99)).from(kNewPlace), message(resume(1, 102)).from(kNewPlace),
           message(resume(1, 100, 502)).from(kNewPlace));
  s.expect_silence();
  EXPECT_EQ(s.status().counters.dropped_forged, 3u);
  s.inject(ack(100));
  s.expect_completion(1);
}

TEST(Resume, FromANewPlaceIsRepeatedUntilAcknowledgedAndNothingElseIsSent) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 2 * kMtu));
  s.expect_requests(100, 101);
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(kNewPlace, kNewQpn);
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kStopped));
  s.run();
  s.advance(seconds(5));
  s.expect_silence();  // restored, and silent until it is told
  s.qp->resume(kNewQpn, false, s.now);
  s.run();
  const MigrationMessage out = s.expect_message(MigrationType::kResume);
  EXPECT_EQ(out.epoch, 1u);
  EXPECT_EQ(out.wire_qpn, kNewQpn);
  EXPECT_EQ(out.first_unacked_psn, 100u);
  EXPECT_EQ(out.expected_psn, 500u);
  for (const int wait : {1, 2, 4}) {
    s.advance(milliseconds(wait));
    s.expect_message(MigrationType::kResume);
  }
  s.inject(resume_ack(7, 101));  // not ours
  s.expect_silence();
  EXPECT_TRUE(s.status().resume_pending);
  s.inject(resume_ack(1, 101));
  s.expect(Opcode::kRcSendLast, 101);
  EXPECT_FALSE(s.status().resume_pending);
  s.inject(ack(101));
  s.expect_completion(1);
}

// The peer has heard RESUME and goes on, its RESUME_ACK is lost: it must not wait for the back-off.
TEST(Resume, IsRepeatedWhenThePeerGoesOn) {
  Script s(with_migration());
  s.become_ferry();
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.qp->resume(kOurQpn, true, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  s.expect_receive(1);
  s.expect_message(MigrationType::kResume);
  s.inject(resume_ack(2, 100));
  s.expect_ack(500);
}

TEST(Resume, AfterARollbackHasANewEpoch) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.qp->stop(s.now);
  EXPECT_EQ(s.expect_message(MigrationType::kPause).epoch, 1u);
  s.qp->resume(kOurQpn, true, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume).epoch, 2u);
  s.inject(resume_ack(2, 100));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
}

TEST(Resume, UnansweredEndsAtTheLimit) {
  ScriptOptions options = with_migration();
  options.settings.paused_limit = seconds(3);
  Script s(options);
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.qp->stop(s.now);
  s.qp->resume(kOurQpn, false, s.now);
  s.advance(seconds(3));
  s.forget_output();
  s.expect_completion(1, Status::kRetryExceeded);
}

TEST(Resume, WhenBothHaveMoved) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(kNewPlace, kNewQpn);
  s.qp->resume(kNewQpn, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);  // to the old place of the peer
  // Its stand-in says where it is now.
  s.inject(message({.type = MigrationType::kMoved,
                    .epoch = 1,
                    .wire_qpn = 0x8022,
                    .location = endpoint(5, 61442)}));
  s.expect_message(MigrationType::kResume, endpoint(5, 61442));
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100})
               .from(endpoint(5, 61442)));
  s.expect_silence();  // the peer has not resumed for all that we know
  s.inject(message(resume(1, 100)).from(endpoint(5, 61442)));
  s.expect_message(MigrationType::kResumeAck, endpoint(5, 61442));
  EXPECT_TRUE(s.expect(Opcode::kRcSendOnly, 100).to == endpoint(5, 61442));
  s.inject(ack(100).from(endpoint(5, 61442)));
  s.expect_completion(1);
}

// The peer has moved too, its PAUSE and RESUME are lost, and our RESUME was kept for it.
TEST(Resume, AcknowledgementTellsWhereThePeerIs) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(kNewPlace, kNewQpn);
  s.qp->resume(kNewQpn, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  MigrationMessage acknowledgement = resume(1, 100);
  acknowledgement.type = MigrationType::kResumeAck;
  s.inject(message(acknowledgement).from(endpoint(5)));
  const Out out = s.expect(Opcode::kRcSendOnly, 100);
  EXPECT_TRUE(out.to == endpoint(5));
  EXPECT_EQ(out.header.dest_qpn, 0x8022u);
  s.inject(ack(100).from(endpoint(5)));
  s.expect_completion(1);
}

TEST(Resume, InRtr) {
  ScriptOptions options = with_migration();
  options.to_rts = false;
  Script s(options);
  s.become_ferry();
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.qp->resume(kOurQpn, true, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume).expected_psn, 500u);
  s.inject(resume_ack(2, 4711));
  s.inject(message(resume(1, 4711)).from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.qp->to_rts(s.options.rts, s.now);
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(ack(100, syndrome::kNoCredits).from(kNewPlace));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
