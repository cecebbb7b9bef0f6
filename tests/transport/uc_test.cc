#include "transport/script.h"

// UC: nothing is acknowledged; what is not whole is dropped.
namespace ferry::transport::test {
namespace {

Opcode uc(Opcode rc) {
  return wire::in_service(wire::Service::kUc, rc);
}

ScriptOptions uc_options(ScriptOptions options = {}) {
  options.limits.type = ConnectionType::kUc;
  options.rtr.max_dest_rd_atomic = 0;
  options.rts = {.next_psn = kOurPsn};
  options.credits_unused = false;
  return options;
}

struct Uc : Script {
  explicit Uc(const ScriptOptions& wanted = uc_options()) : Script(wanted) {}
};

TEST(UcTest, ARequestIsCompleteWhenItIsSent) {
  Uc script;
  script.post(send(1, 2 * kMtu + 1));
  script.expect(uc(Opcode::kRcSendFirst), 100);
  script.expect(uc(Opcode::kRcSendMiddle), 101);
  EXPECT_FALSE(script.expect(uc(Opcode::kRcSendLast), 102).header.ack_request);
  script.expect_completion(1);
  script.post(write(2, 10).immediate(5));
  script.expect(uc(Opcode::kRcWriteOnlyImm), 103);
  script.expect_completion(2);
}

TEST(UcTest, ALocalErrorStopsTheSendQueueOnly) {
  Uc script;
  script.host.refuse_local = true;
  script.post(send(1, 10));
  script.expect_completion(1, Status::kLocalProtection);
  EXPECT_EQ(int(script.qp->state()), int(QpState::kSqe));
  script.post(send(2, 10));
  script.expect_completion(2, Status::kFlush);
  script.host.refuse_local = false;
  script.post_receive(7);
  script.inject(packet(uc(Opcode::kRcSendOnly), 500, 8));
  script.expect_receive(7);
  script.qp->set_sqd(false);
  script.post(send(3, 10));
  script.expect(uc(Opcode::kRcSendOnly), 100);
  script.expect_completion(3);
}

TEST(UcTest, OperationsOfOtherServicesAreRefused) {
  Uc script;
  const Request request = read(1, 8);
  EXPECT_EQ(script.qp->post_send(request.request), EINVAL);
}

TEST(UcTest, AMessageWithAGapIsDroppedAndTheNextOneTaken) {
  Uc script;
  script.post_receive(7);
  script.inject(packet(uc(Opcode::kRcSendFirst), 500), packet(uc(Opcode::kRcSendLast), 502));
  script.inject(packet(uc(Opcode::kRcSendMiddle), 503), packet(uc(Opcode::kRcSendLast), 504));
  script.inject(packet(uc(Opcode::kRcSendFirst), 600), packet(uc(Opcode::kRcSendLast), 601, 4));
  EXPECT_EQ(script.expect_receive(7).bytes, kMtu + 4);  // in the WQE of the dropped one
  script.expect_memory(kReceive, 600, kMtu);
  EXPECT_EQ(script.status().counters.dropped_messages, 1u);
  script.expect_silence();
}

TEST(UcTest, AFirstInTheMiddleBeginsAgain) {
  Uc script;
  script.post_receive(7);
  script.inject(packet(uc(Opcode::kRcSendFirst), 500), packet(uc(Opcode::kRcSendFirst), 500),
                packet(uc(Opcode::kRcSendLast), 501, 1));
  EXPECT_EQ(script.expect_receive(7).bytes, kMtu + 1);
}

TEST(UcTest, WithoutAReceiveWqeItIsLost) {
  Uc script;
  script.inject(packet(uc(Opcode::kRcSendOnly), 500, 8));
  EXPECT_EQ(script.status().counters.dropped_messages, 1u);
  script.post_receive(7);
  script.inject(packet(uc(Opcode::kRcSendOnly), 501, 8));
  script.expect_receive(7);
}

TEST(UcTest, AWriteWithAWrongKeyWritesNothingAndHarmsNobody) {
  Uc script;
  script.inject(write_packet(uc(Opcode::kRcWriteOnly), 500, 8, kRemote, 8).key(0xBAD));
  EXPECT_EQ(script.host.memory()[kRemote], std::byte{0});
  script.inject(write_packet(uc(Opcode::kRcWriteOnly), 501, 8, kRemote, 8));
  script.expect_memory(kRemote, 501, 8);
  EXPECT_EQ(int(script.qp->state()), int(QpState::kRts));
}

TEST(UcTest, AMessageTooLongForItsWqeIsAnError) {
  Uc script;
  script.post_receive(7, 8);
  script.inject(packet(uc(Opcode::kRcSendOnly), 500, 8));
  script.expect_receive(7);
  script.post_receive(8, 8);
  script.inject(packet(uc(Opcode::kRcSendOnly), 501, 9));
  script.expect_receive(8, Status::kLocalLength);
  EXPECT_EQ(int(script.qp->state()), int(QpState::kError));
}

TEST(UcTest, PausedInTheMiddleItSendsTheMessageAgainFromItsBeginning) {
  Uc script(uc_options(with_migration()));
  script.become_ferry();
  unsigned room = 2;
  script.host.port_is_full = [&] { return room == 0 || room-- == 0; };
  script.post(send(1, 3 * kMtu));
  script.expect(uc(Opcode::kRcSendFirst), 100);
  script.expect(uc(Opcode::kRcSendMiddle), 101);
  room = 100;
  script.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  script.expect_silence();
  script.inject(message({.type = MigrationType::kResume,
                         .epoch = 1,
                         .wire_qpn = kPeerQpn,
                         .first_unacked_psn = 7,  // a gap on both sides is no lie
                         .expected_psn = 9000}));
  script.expect_message(MigrationType::kResumeAck);
  script.expect_requests(100, 102);
  script.expect_completion(1);
}

TEST(UcTest, StoppedInTheMiddleTheMessageThatCameInPartIsDropped) {
  Uc script(uc_options(with_migration()));
  script.become_ferry();
  script.post_receive(7);
  script.inject(packet(uc(Opcode::kRcSendFirst), 500));
  script.qp->stop(script.now);
  script.forget_output();
  script.move_to(endpoint(9), 0x4011);
  script.qp->resume(0x4011, false, script.now);
  script.run();
  script.expect_message(MigrationType::kResume);
  script.inject(message({.type = MigrationType::kResumeAck, .epoch = 1, .wire_qpn = kPeerQpn}));
  script.inject(packet(uc(Opcode::kRcSendOnly), 510, 4));
  EXPECT_EQ(script.expect_receive(7).bytes, 4u);
}

}  // namespace
}  // namespace ferry::transport::test
