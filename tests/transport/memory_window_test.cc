#include "transport/script.h"

// BIND_MW in the send queue (clause 10.6.7).
namespace ferry::transport::test {
namespace {

TEST(MemoryWindow, BindIsCarriedOutWhenItsTurnComesAndCompletesInOrder) {
  Script s;
  s.post(send(1, 1));
  s.post(bind(2, 0x77));
  s.post(send(3, 1));
  // It does not wait for the SEND, and takes no PSN.
  s.expect_requests(100, 101);
  ASSERT_EQ(s.host.binds.size(), 1u);
  EXPECT_EQ(s.host.binds.front().window, 3u);
  EXPECT_EQ(s.host.binds.front().rkey, 0x77u);
  EXPECT_EQ(s.host.binds.front().lkey, kLkey);
  EXPECT_EQ(s.host.binds.front().address, 0x100u);
  EXPECT_EQ(s.host.binds.front().length, 0x80u);
  EXPECT_EQ(s.host.binds.front().access, std::uint32_t{kRemoteRead});
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(ack(100));
  s.expect_completion(1);
  EXPECT_EQ(s.expect_completion(2).operation, Operation::kBindWindow);
  s.inject(ack(101));
  s.expect_completion(3);
}

TEST(MemoryWindow, BindIsNotRepeatedWithThePacketsAroundIt) {
  Script s;
  s.post(send(1, 2 * kMtu));
  s.post(bind(2, 0x77));
  s.post(bind(3, 0x78));
  s.post(send(4, 2 * kMtu));
  s.expect_requests(100, 103);
  s.host.window_bytes = s.host.accounted() / 2;  // of two packets
  s.advance(milliseconds(68));
  s.forget_output();
  s.inject(nak(101, syndrome::kNakPsnSequence));
  s.forget_output();
  // Acknowledged in the middle of being sent again.
  s.inject(ack(102));
  for (int i = 1; i <= 3; ++i) s.expect_completion(i);
  s.expect(Opcode::kRcSendLast, 103);
  s.inject(nak(103, syndrome::kNakPsnSequence));
  s.expect(Opcode::kRcSendLast, 103);
  s.inject(ack(103));
  s.expect_completion(4);
  EXPECT_EQ(s.host.binds.size(), 2u);
}

TEST(MemoryWindow, AcknowledgedBeforeBeingSentAgainPassesOverABind) {
  Script s;
  s.post(send(1, 1));
  s.post(bind(2, 0x77));
  s.post(send(3, 1));
  s.expect_requests(100, 101);
  bool full = true;
  s.host.port_is_full = [&] { return full; };
  s.advance(milliseconds(68));  // gone back, and nothing could be sent yet
  s.inject(ack(100));
  s.expect_completion(1);
  s.expect_completion(2);
  full = false;
  s.run();
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(3);
  EXPECT_EQ(s.host.binds.size(), 1u);
}

TEST(MemoryWindow, FailedBindEndsTheQueueWhenItIsTheOldest) {
  Script s;
  s.host.bind_status = Status::kWindowBind;
  s.post(send(1, 1));
  s.post(read(2, 10));
  s.post(bind(3, 0x77));
  s.post(send(4, 1));
  s.expect_requests(100, 101);
  s.expect_silence();
  s.inject(ack(100));
  s.expect_completion(1);
  EXPECT_EQ(int(s.qp->state()), int(QpState::kRts));
  s.advance(milliseconds(1));  // the READ goes on meanwhile: its probe
  s.expect_requests(101, 101);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(2);
  s.expect_completion(3, Status::kWindowBind);
  s.expect_completion(4, Status::kFlush);
  EXPECT_EQ(s.host.binds.size(), 1u);
}

TEST(MemoryWindow, NakOfWhatComesAfterABindMeansThat) {
  Script s;
  s.post(send(1, 1));
  s.post(bind(2, 0x77));
  s.post(write(3, 1));
  s.expect_requests(100, 101);
  s.inject(nak(101, syndrome::kNakRemoteAccess));
  s.expect_completion(1);
  s.expect_completion(2);
  s.expect_completion(3, Status::kRemoteAccess);
}

TEST(MemoryWindow, BindsAloneNeedNoPackets) {
  Script s;
  for (std::uint32_t i = 1; i <= 200; ++i) {
    s.post(bind(i, i));
    s.expect_completion(i);
  }
  s.expect_silence();
  EXPECT_EQ(s.qp->next_deadline(), kNever);
}

TEST(MemoryWindow, BindWaitsBehindWhatTheWindowHolds) {
  ScriptOptions options;
  options.rts.max_rd_atomic = 1;
  Script s(options);
  s.post(read(1, 10));
  s.post(read(2, 10));
  s.post(bind(3, 0x77));
  s.expect_requests(100, 100);
  EXPECT_TRUE(s.host.binds.empty());
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  EXPECT_EQ(s.host.binds.size(), 1u);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(2);
  s.expect_completion(3);
}

// Carried out before the stop and waiting for the SEND before it: it completes at the new place and
// is not carried out there.
TEST(MemoryWindow, BindIsCarriedOutOnceAcrossAMove) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.post(bind(2, 0x77));
  s.post(read(3, 10));
  s.post(bind(4, 0x78).fenced());
  s.expect_requests(100, 101);
  EXPECT_EQ(s.host.binds.size(), 1u);
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(endpoint(9, 61441), 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  EXPECT_EQ(s.host.binds.size(), 1u);
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100}));
  s.expect_requests(100, 101);
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(ack(100));
  s.expect_completion(1);
  s.expect_completion(2);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(3);
  s.expect_completion(4);
  ASSERT_EQ(s.host.binds.size(), 2u);
  EXPECT_EQ(s.host.binds.back().rkey, 0x78u);
  EXPECT_EQ(s.host.binds.back().length, 0x80u);
}

TEST(MemoryWindow, BindNeedsABinding) {
  Script s;
  EXPECT_EQ(s.qp->post_send({.operation = Operation::kBindWindow}), EINVAL);
}

}  // namespace
}  // namespace ferry::transport::test
