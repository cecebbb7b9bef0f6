#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Sqd, FinishesWhatWasBegunAndBeginsNothing) {
  ScriptOptions options;
  Script s(options);
  s.host.window_bytes = 3000;  // two packets at a time
  s.post(send(1, 4 * kMtu));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.qp->set_sqd(true);
  s.inject(ack(101));
  s.expect_requests(102, 103);
  EXPECT_TRUE(s.host.events.empty());
  s.inject(ack(103));
  s.expect_completion(1);
  s.expect_event(Host::Event::kSqDrained);
  s.expect_silence();
  s.qp->set_sqd(false);
  s.run();
  s.expect_requests(104, 104);
  s.inject(ack(104));
  s.expect_completion(2);
  EXPECT_TRUE(s.host.events.empty());
}

TEST(Sqd, OfAnIdleQueueIsDrainedAtOnce) {
  Script s;
  s.qp->set_sqd(true);
  s.expect_event(Host::Event::kSqDrained);
  // The responder goes on.
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  s.expect_ack(500);
  s.expect_receive(1);
}

TEST(Sqd, GoBackInSqdRepeatsWhatWasSent) {
  Script s;
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.qp->set_sqd(true);
  s.post(send(2, 1));
  s.advance(milliseconds(68));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
  s.expect_event(Host::Event::kSqDrained);
  s.qp->to_error(s.now);
  s.expect_completion(2, Status::kFlush);
}

// --- Another path (clause 11.2.5.2)

const port::Endpoint kOtherPath = endpoint(7);
constexpr std::uint32_t kOtherQpn = 0x4011;

MigrationMessage resume_of_peer(MigrationType type, std::uint32_t epoch,
                                std::uint32_t expected = 101) {
  return {.type = type,
          .epoch = epoch,
          .wire_qpn = kPeerQpn,
          .first_unacked_psn = kPeerPsn,
          .expected_psn = expected};
}

TEST(Sqd, PathToAnUnmodifiedPeer) {
  Script s;
  s.post(send(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.qp->set_sqd(true);
  s.inject(ack(100));
  s.expect_completion(1);
  // What is not acknowledged is sent again there, and only there is the peer heard.
  s.qp->set_path(kOtherPath, kOtherQpn, s.now);
  s.run();
  EXPECT_TRUE(s.expect(Opcode::kRcSendOnly, 101).to == kOtherPath);
  EXPECT_EQ(s.status().wire_qpn, kOtherQpn);
  s.inject(ack(101));
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(ack(101).from(kOtherPath));
  s.expect_completion(2);
  s.expect_event(Host::Event::kSqDrained);
  s.qp->set_sqd(false);
  s.post(send(3, 1));
  EXPECT_TRUE(s.expect(Opcode::kRcSendOnly, 102).to == kOtherPath);
  s.inject(ack(102).from(kOtherPath));
  s.expect_completion(3);
  s.post_receive(9);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack().from(kOtherPath));
  EXPECT_TRUE(s.expect_ack(500).to == kOtherPath);
  s.expect_receive(9);
}

TEST(Sqd, PathToAFerryPeerHoldsOnceBothHaveChangedIt) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.qp->set_sqd(true);
  s.qp->set_path(kOtherPath, kOtherQpn, s.now);
  s.run();
  const MigrationMessage told = s.expect_message(MigrationType::kResume, kOtherPath);
  EXPECT_EQ(told.epoch, 1u);
  EXPECT_EQ(told.wire_qpn, kOtherQpn);
  s.qp->set_sqd(false);
  s.post(send(3, 1));
  // The peer has not heard it there: no retry is counted for that, it is told again.
  s.advance(seconds(5));
  EXPECT_TRUE(s.host.sent.empty());
  s.expect_message(MigrationType::kResume, kOtherPath);
  s.forget_output();
  EXPECT_EQ(s.status().counters.timeouts, 0u);
  // It changes its own, and both tell each other.
  s.inject(message(resume_of_peer(MigrationType::kResume, 1)).from(kOtherPath));
  s.expect_message(MigrationType::kResumeAck, kOtherPath);
  s.expect_message(MigrationType::kResume, kOtherPath);
  s.expect_completion(1);
  s.inject(message(resume_of_peer(MigrationType::kResumeAck, 1)).from(kOtherPath));
  s.expect_requests(101, 102);
  s.inject(ack(102).from(kOtherPath));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(Sqd, PathThatIsChangedWhileStoppedIsToldAtTheResume) {
  Script s(with_migration());
  s.become_ferry();
  s.qp->set_sqd(true);
  s.expect_event(Host::Event::kSqDrained);
  s.qp->stop(s.now);
  s.forget_output();
  s.qp->set_path(kOtherPath, kOurQpn, s.now);
  s.run();
  s.expect_silence();
  s.qp->resume(kOtherQpn, false, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume, kOtherPath).epoch, 1u);
  s.inject(message(resume_of_peer(MigrationType::kResumeAck, 1, 100)).from(kOtherPath));
  EXPECT_FALSE(s.status().resume_pending);
}

}  // namespace
}  // namespace ferry::transport::test
