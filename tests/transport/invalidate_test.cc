#include "transport/script.h"

// SEND with Invalidate (clause 10.6.7.2.4) and LOCAL_INV (10.6.5.1).
namespace ferry::transport::test {
namespace {

constexpr std::uint32_t kKey = 0x7700;

// --- SEND with Invalidate

TEST(SendInvalidate, OfOnePacketCarriesTheKey) {
  Script s;
  s.post(send(1, 10).invalidating(kKey).solicited());
  const Out out = s.expect(Opcode::kRcSendOnlyInvalidate, 100);
  EXPECT_EQ(out.header.invalidate_rkey, kKey);
  EXPECT_TRUE(out.header.solicited);
  EXPECT_EQ(out.payload.size(), 10u);
  s.inject(ack(100));
  EXPECT_EQ(s.expect_completion(1).operation, Operation::kSendInvalidate);
}

TEST(SendInvalidate, OfSeveralPacketsCarriesTheKeyInTheLast) {
  Script s;
  s.post(send(1, 2 * kMtu + 1).invalidating(kKey));
  s.expect(Opcode::kRcSendFirst, 100);
  s.expect(Opcode::kRcSendMiddle, 101);
  EXPECT_EQ(s.expect(Opcode::kRcSendLastInvalidate, 102).header.invalidate_rkey, kKey);
  s.inject(nak(102, syndrome::kNakPsnSequence));
  EXPECT_EQ(s.expect(Opcode::kRcSendLastInvalidate, 102).header.invalidate_rkey, kKey);
  s.inject(ack(102));
  s.expect_completion(1);
}

TEST(SendInvalidate, InvalidatesOnceBeforeTheReceiveCompletes) {
  Script s;
  s.host.invalidatable = {kKey};
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendFirst, 500));
  EXPECT_TRUE(s.host.invalidations.empty());
  const In last = packet(Opcode::kRcSendLastInvalidate, 501, 4).invalidates(kKey).asks_ack();
  s.inject(last);
  s.expect_ack(501);
  ASSERT_EQ(s.host.invalidations.size(), 1u);
  EXPECT_EQ(s.host.invalidations.front().rkey, kKey);
  EXPECT_TRUE(s.host.invalidations.front().remote);
  const ReceiveCompletion completion = s.expect_receive(1);
  EXPECT_TRUE(completion.has_invalidated);
  EXPECT_EQ(completion.invalidated_rkey, kKey);
  EXPECT_FALSE(completion.has_immediate);
  EXPECT_EQ(completion.bytes, kMtu + 4);
  s.inject(last);  // its acknowledgement was lost
  s.expect_ack(501);
  EXPECT_EQ(s.host.invalidations.size(), 1u);
}

TEST(SendInvalidate, WithoutAReceiveInvalidatesNothing) {
  Script s;
  s.host.invalidatable = {kKey};
  const In in = packet(Opcode::kRcSendOnlyInvalidate, 500, 4).invalidates(kKey).asks_ack();
  s.inject(in);
  s.expect_nak(500, syndrome::kRnrNak | 12);
  EXPECT_TRUE(s.host.invalidations.empty());
  s.post_receive(1);
  s.inject(in);
  s.expect_ack(500);
  s.expect_receive(1);
}

TEST(SendInvalidate, OfAKeyThatMayNotBeIsARemoteAccessError) {
  Script s;
  s.post_receive(1);
  s.post_receive(2);
  s.inject(packet(Opcode::kRcSendOnlyInvalidate, 500, 4).invalidates(kKey));
  s.expect_nak(500, syndrome::kNakRemoteAccess);
  s.expect_receive(1, Status::kLocalAccess);
  s.expect_receive(2, Status::kFlush);
  EXPECT_EQ(int(s.qp->state()), int(QpState::kError));
}

TEST(SendInvalidate, RefusedByThePeerCompletesWithRemoteAccess) {
  Script s;
  s.post(send(1, 10).invalidating(kKey));
  s.expect_requests(100, 100);
  s.inject(nak(100, syndrome::kNakRemoteAccess));
  s.expect_completion(1, Status::kRemoteAccess);
}

TEST(SendInvalidate, OfNothingButTheKey) {
  Script s;
  s.host.invalidatable = {kKey};
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnlyInvalidate, 500, 0).invalidates(kKey));
  EXPECT_EQ(s.expect_receive(1).bytes, 0u);
  // As the last of several it must have data (clause 9.7.4.1.6).
  s.post_receive(2);
  s.inject(packet(Opcode::kRcSendFirst, 501),
           packet(Opcode::kRcSendLastInvalidate, 502, 0).invalidates(kKey));
  s.expect_nak(502, syndrome::kNakInvalidRequest);
  s.expect_receive(2, Status::kLocalQpOperation);
}

TEST(SendInvalidate, MovesAlong) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.post(send(1, 10).invalidating(kKey));
  s.move_to(kUs, kOurQpn);
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100}));
  s.expect_message(MigrationType::kResumeAck);
  s.forget_output();
  s.advance(milliseconds(68));
  EXPECT_EQ(s.expect(Opcode::kRcSendOnlyInvalidate, 100).header.invalidate_rkey, kKey);
  s.inject(ack(100));
  s.expect_completion(1);
}

// --- LOCAL_INV

TEST(LocalInvalidate, OfAnIdleQueueIsDoneAtOnceAndSendsNothing) {
  Script s;
  s.host.invalidatable = {kKey};
  s.post(local_invalidate(1, kKey));
  s.expect_silence();
  EXPECT_EQ(s.expect_completion(1).operation, Operation::kLocalInvalidate);
  ASSERT_EQ(s.host.invalidations.size(), 1u);
  EXPECT_FALSE(s.host.invalidations.front().remote);
  s.post(send(2, 1));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(2);
}

TEST(LocalInvalidate, WaitsForAllBeforeItAndHoldsWhatComesAfter) {
  Script s;
  s.host.invalidatable = {kKey};
  s.post(send(1, 1));
  s.post(read(2, 10));
  s.post(local_invalidate(3, kKey));
  s.post(send(4, 1));
  s.expect_requests(100, 101);
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(1);
  s.expect_completion(2);
  s.expect_completion(3);
  s.expect_requests(102, 102);
  s.inject(ack(102));
  s.expect_completion(4);
  EXPECT_EQ(s.host.invalidations.size(), 1u);
}

TEST(LocalInvalidate, UnsignaledCompletesSilently) {
  Script s;
  s.host.invalidatable = {kKey};
  s.post(local_invalidate(1, kKey).unsignaled());
  EXPECT_TRUE(s.host.sent.empty());
  EXPECT_EQ(s.host.invalidations.size(), 1u);
  // Its place in the queue is free again.
  s.host.invalidatable = {1, 2, 3};
  for (std::uint32_t i = 1; i <= 3; ++i) s.post(local_invalidate(i, i).unsignaled());
  EXPECT_EQ(s.host.invalidations.size(), 4u);
}

TEST(LocalInvalidate, OfAKeyThatMayNotBeFailsTheQueue) {
  Script s;
  s.post(send(1, 1));
  s.post(local_invalidate(2, kKey));
  s.post(send(3, 1));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
  s.expect_completion(2, Status::kWindowBind);
  s.expect_completion(3, Status::kFlush);
  s.expect_silence();
}

TEST(LocalInvalidate, IsNotBegunWhileDraining) {
  Script s;
  s.host.invalidatable = {kKey};
  s.qp->set_sqd(true);
  s.expect_event(Host::Event::kSqDrained);
  s.post(local_invalidate(1, kKey));
  EXPECT_TRUE(s.host.invalidations.empty());
  s.qp->set_sqd(false);
  s.run();
  s.expect_completion(1);
}

TEST(LocalInvalidate, FlushedIsNotCarriedOut) {
  Script s;
  s.host.invalidatable = {kKey};
  s.post(send(1, 1));
  s.post(local_invalidate(2, kKey));
  s.expect_requests(100, 100);
  s.qp->to_error(s.now);
  s.expect_completion(1, Status::kFlush);
  s.expect_completion(2, Status::kFlush);
  EXPECT_TRUE(s.host.invalidations.empty());
}

TEST(LocalInvalidate, MovesAlong) {
  Script s(with_migration());
  s.become_ferry();
  s.host.invalidatable = {kKey};
  s.post(send(1, 1));
  s.post(local_invalidate(2, kKey));
  s.post(send(3, 1));
  s.expect_requests(100, 100);
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(endpoint(9, 61441), 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  EXPECT_TRUE(s.host.invalidations.empty());
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 101}));
  s.expect_completion(1);
  s.expect_completion(2);
  EXPECT_EQ(s.host.invalidations.size(), 1u);
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(3);
}

}  // namespace
}  // namespace ferry::transport::test
