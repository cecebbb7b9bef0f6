#include "transport/script.h"

// Fences: clause 10.8.3.3.
namespace ferry::transport::test {
namespace {

TEST(Fence, WaitsForAtomicsAndReadsBeforeIt) {
  Script s;
  s.post(fetch_add(1, 1));
  s.post(read(2, 10));
  s.post(send(3, 1).fenced());
  s.post(send(4, 1));
  s.expect_requests(100, 101);
  s.inject(atomic_ack(100, 0));
  s.expect_completion(1);
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(2);
  s.expect_requests(102, 103);
  s.inject(ack(103));
  s.expect_completion(3);
  s.expect_completion(4);
}

TEST(Fence, DoesNotWaitForSendsAndWrites) {
  Script s;
  s.post(send(1, 1));
  s.post(write(2, 1));
  s.post(fetch_add(3, 1).fenced());
  s.expect_requests(100, 102);
  s.inject(ack(101), atomic_ack(102, 0));
  for (int i = 1; i <= 3; ++i) s.expect_completion(i);
}

TEST(Fence, OfReadsAndAtomicsMakesThemFollowEachOther) {
  Script s;
  s.post(fetch_add(1, 1));
  s.post(fetch_add(2, 1).fenced());
  s.post(read(3, 10).fenced());
  s.expect_requests(100, 100);
  s.inject(atomic_ack(100, 0));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.inject(atomic_ack(101, 1));
  s.expect_completion(2);
  s.expect_requests(102, 102);
  s.inject(packet(Opcode::kRcReadResponseOnly, 102, 10));
  s.expect_completion(3);
}

TEST(Fence, HoldsWhenWhatItWaitsForIsSentAgain) {
  Script s;
  s.post(fetch_add(1, 1));
  s.post(write(2, 1).fenced());
  s.expect_requests(100, 100);
  s.advance(milliseconds(68));
  s.expect_requests(100, 100);
  s.expect_silence();
  s.inject(atomic_ack(100, 0));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.inject(nak(101, syndrome::kNakPsnSequence));
  s.expect_requests(101, 101);  // what was sent is not fenced again
  s.inject(ack(101));
  s.expect_completion(2);
}

TEST(Fence, OfLocalOperationsWaitsToo) {
  Script s;
  s.post(read(1, 10));
  s.post(bind(2, 0x77).fenced());
  s.expect_requests(100, 100);
  EXPECT_TRUE(s.host.binds.empty());
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10));
  s.expect_completion(1);
  s.expect_completion(2);
  EXPECT_EQ(s.host.binds.size(), 1u);
}

TEST(Fence, MovesAlong) {
  Script s(with_migration());
  s.become_ferry();
  s.post(fetch_add(1, 1));
  s.post(send(2, 1).fenced());
  s.expect_requests(100, 100);
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(endpoint(9, 61441), 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 101}));
  s.expect_requests(100, 100);
  s.expect_silence();
  s.inject(atomic_ack(100, 0));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(2);
}

}  // namespace
}  // namespace ferry::transport::test
