#include <cerrno>

#include "transport/script.h"

// XRC (annex A14): an initiator that only requests, a target that only responds, from the SRQ that
// each message names.
namespace ferry::transport::test {
namespace {

constexpr std::uint32_t kSrq = 0x31, kOtherSrq = 0x32;

Opcode xrc(Opcode rc) {
  return wire::in_service(wire::Service::kXrc, rc);
}
ScriptOptions initiator(ScriptOptions options = {}) {
  options.limits.type = ConnectionType::kXrcInitiator;
  return options;
}
ScriptOptions target(ScriptOptions options = {}) {
  options.limits.type = ConnectionType::kXrcTarget;
  options.to_rts = false;
  return options;
}

// --- The initiator

TEST(XrcInitiator, NamesTheSrqInEveryRequest) {
  Script s(initiator());
  s.post(send(1, 3 * kMtu).to_srq(kSrq));
  for (const Opcode opcode : {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast}) {
    EXPECT_EQ(s.expect(xrc(opcode), 100 + static_cast<std::uint32_t>(opcode)).header.xrc_srqn,
              kSrq);
  }
  s.post(write(2, 1).to_srq(kOtherSrq));
  EXPECT_EQ(s.expect(xrc(Opcode::kRcWriteOnly), 103).header.xrc_srqn, kOtherSrq);
  s.post(read(3, 10).to_srq(kSrq));
  EXPECT_EQ(s.expect(xrc(Opcode::kRcReadRequest), 104).header.xrc_srqn, kSrq);
  s.post(fetch_add(4, 1).to_srq(kSrq));
  EXPECT_EQ(s.expect(xrc(Opcode::kRcFetchAdd), 105).header.xrc_srqn, kSrq);
  s.inject(ack(103).xrc(), packet(Opcode::kRcReadResponseOnly, 104, 10).xrc(),
           atomic_ack(105, 6).xrc());
  for (int i = 1; i <= 4; ++i) s.expect_completion(i);
  EXPECT_EQ(s.host.memory()[9], payload_byte(104, 9));
  EXPECT_EQ(s.word(0), 6u);
}

TEST(XrcInitiator, GoesBackAsRcDoes) {
  Script s(initiator());
  s.post(send(1, 1).to_srq(kSrq));
  s.post(send(2, 1).to_srq(kOtherSrq));
  s.expect_requests(100, 101);
  s.inject(nak(101, syndrome::kNakPsnSequence).xrc());
  s.expect_completion(1);
  EXPECT_EQ(s.expect(xrc(Opcode::kRcSendOnly), 101).header.xrc_srqn, kOtherSrq);
  for (const int wait : {1, 2, 65}) {  // two probes, and the timeout
    s.advance(milliseconds(wait));
    EXPECT_EQ(s.expect(xrc(Opcode::kRcSendOnly), 101).header.xrc_srqn, kOtherSrq);
  }
  s.inject(ack(101).xrc());
  s.expect_completion(2);
}

TEST(XrcInitiator, HearsNoRcAndNoRequests) {
  Script s(initiator());
  s.post(send(1, 1).to_srq(kSrq));
  s.expect_requests(100, 100);
  s.inject(ack(100));  // RC's
  EXPECT_TRUE(s.host.sent.empty());
  s.post_receive(9);
  s.inject(packet(Opcode::kRcSendOnly, 500, 4).to_srq(kSrq).asks_ack(),
           packet(Opcode::kRcSendOnly, 500, 4).asks_ack());
  s.expect_silence();
  s.inject(ack(100).xrc());
  s.expect_completion(1);
}

TEST(XrcInitiator, MovesWithTheSrqsOfItsRequests) {
  Script s(initiator(with_migration()));
  s.become_ferry();
  s.post(send(1, 1).to_srq(kSrq));
  s.post(send(2, 1).to_srq(kOtherSrq));
  s.expect_requests(100, 101);
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
                    .expected_psn = 100}));
  EXPECT_EQ(s.expect(xrc(Opcode::kRcSendOnly), 100).header.xrc_srqn, kSrq);
  EXPECT_EQ(s.expect(xrc(Opcode::kRcSendOnly), 101).header.xrc_srqn, kOtherSrq);
  s.inject(ack(101).xrc());
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(XrcInitiator, IsPausedByItsPeersNakStopped) {
  Script s(initiator(with_migration()));
  s.become_ferry();
  s.post(send(1, 1).to_srq(kSrq));
  s.expect_requests(100, 100);
  s.inject(message({.type = MigrationType::kNakStopped, .epoch = 1}));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 1,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100})
               .from(endpoint(9)));
  s.expect_message(MigrationType::kResumeAck, endpoint(9));
  s.expect_requests(100, 100);
  s.inject(ack(100).xrc().from(endpoint(9)));
  s.expect_completion(1);
}

// --- The target

TEST(XrcTarget, TakesReceivesFromTheSrqThatIsNamed) {
  Script s(target());
  s.host.srqs = {kSrq, kOtherSrq};
  s.post_receive_to(kSrq, 1);
  s.post_receive_to(kOtherSrq, 2);
  s.inject(packet(Opcode::kRcSendOnly, 500, 4).to_srq(kOtherSrq).asks_ack());
  s.expect(xrc(Opcode::kRcAck), 500);
  EXPECT_EQ(s.expect_receive(2).srqn, kOtherSrq);
  s.expect_event(Host::Event::kCommunicationEstablished);
  s.inject(packet(Opcode::kRcSendFirst, 501).to_srq(kSrq),
           packet(Opcode::kRcSendLastImm, 502, 4).to_srq(kSrq).immediate(77).asks_ack());
  s.expect(xrc(Opcode::kRcAck), 502);
  const ReceiveCompletion completion = s.expect_receive(1);
  EXPECT_EQ(completion.srqn, kSrq);
  EXPECT_EQ(completion.bytes, kMtu + 4);
  EXPECT_EQ(completion.immediate, 77u);
}

TEST(XrcTarget, GivesNoCreditsAndRnrNaksAnEmptySrq) {
  Script s(target());
  s.host.srqs = {kSrq, kOtherSrq};
  s.host.post_receive({});  // not for it
  s.inject(packet(Opcode::kRcSendOnly, 500, 4).to_srq(kSrq).asks_ack());
  EXPECT_EQ(int(s.expect(xrc(Opcode::kRcAck), 500).header.aeth.syndrome), syndrome::kRnrNak | 12);
  s.expect_event(Host::Event::kCommunicationEstablished);
  s.post_receive_to(kSrq, 1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 4).to_srq(kSrq).asks_ack());
  EXPECT_EQ(int(s.expect(xrc(Opcode::kRcAck), 500).header.aeth.syndrome),
            syndrome::kAck | syndrome::kNoCredits);
  s.expect_receive(1);
}

TEST(XrcTarget, RefusesAnSrqThatIsNotOfItsDomain) {
  for (const Opcode opcode :
       {Opcode::kRcSendOnly, Opcode::kRcWriteOnlyImm, Opcode::kRcReadRequest}) {
    Script s(target());
    s.host.srqs = {kSrq};
    In in = packet(opcode, 500, opcode == Opcode::kRcReadRequest ? 0 : 4).to_srq(kOtherSrq);
    in.header.reth = {kRemote, kRkey, 4};
    s.inject(in);
    EXPECT_EQ(int(s.expect(xrc(Opcode::kRcAck), 500).header.aeth.syndrome),
              int(syndrome::kNakInvalidRequest));
    s.expect_event(Host::Event::kCommunicationEstablished);
    s.expect_event(Host::Event::kQpRequestError);
  }
}

TEST(XrcTarget, ChecksRemoteKeysInThePdOfTheNamedSrq) {
  Script s(target());
  s.host.srqs = {kSrq, kOtherSrq};
  bool full = true;  // the response waits for the WRITE
  s.host.port_is_full = [&] { return full; };
  In first = read_request(500, kRemote, 4).to_srq(kSrq);
  In second = write_packet(Opcode::kRcWriteOnly, 501, 4, kRemote + 64, 4).to_srq(kOtherSrq);
  s.inject(first);
  EXPECT_EQ(s.host.checked_with_srq, kSrq);
  s.inject(second);
  EXPECT_EQ(s.host.checked_with_srq, kOtherSrq);
  full = false;
  s.run();
  s.expect(xrc(Opcode::kRcReadResponseOnly), 500);
  EXPECT_EQ(s.host.read_with_srq, kSrq);
  s.expect_event(Host::Event::kCommunicationEstablished);
}

TEST(XrcTarget, AnswersRepeatedAtomicsFromItsResources) {
  Script s(target());
  s.host.srqs = {kSrq};
  s.set_word(kRemote, 40);
  for (int i = 0; i < 2; ++i) {
    s.inject(fetch_add_request(500, kRemote, 2).to_srq(kSrq));
    EXPECT_EQ(s.expect(xrc(Opcode::kRcAtomicAck), 500).header.original, 40u);
  }
  EXPECT_EQ(s.word(kRemote), 42u);
  s.expect_event(Host::Event::kCommunicationEstablished);
}

TEST(XrcTarget, HasNoSendQueue) {
  Script s(target());
  s.qp->to_rts(s.options.rts, s.now);
  EXPECT_EQ(s.qp->post_send({.operation = Operation::kSend}), EINVAL);
  EXPECT_EQ(s.qp->post_send({.operation = Operation::kLocalInvalidate}), EINVAL);
  s.expect_silence();
}

TEST(XrcTarget, MovesInTheMiddleOfAMessage) {
  Script s(target(with_migration()));
  s.become_ferry();
  s.host.srqs = {kSrq};
  s.post_receive_to(kSrq, 1);
  s.inject(packet(Opcode::kRcSendFirst, 500).to_srq(kSrq));
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(endpoint(9, 61441), 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume).expected_psn, 501u);
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = 500,
                    .expected_psn = 0}));
  s.inject(packet(Opcode::kRcSendLast, 501, 4).to_srq(kSrq).asks_ack());
  s.expect(xrc(Opcode::kRcAck), 501);
  const ReceiveCompletion completion = s.expect_receive(1);
  EXPECT_EQ(completion.srqn, kSrq);
  EXPECT_EQ(completion.bytes, kMtu + 4);
  s.expect_event(Host::Event::kCommunicationEstablished);
}

TEST(XrcTarget, InTheMiddleOfAMessageFlushesIt) {
  Script s(target());
  s.host.srqs = {kSrq};
  s.post_receive_to(kSrq, 1);
  s.inject(packet(Opcode::kRcSendFirst, 500).to_srq(kSrq));
  s.qp->to_error(s.now);
  EXPECT_EQ(s.expect_receive(1, Status::kFlush).srqn, kSrq);
  s.expect_event(Host::Event::kCommunicationEstablished);
}

// A stopped XRC target towards a standard NIC.
TEST(XrcTarget, StoppedAnswersAnUnmodifiedPeerInItsService) {
  Script s(target(with_migration()));
  s.run();
  s.forget_output();
  s.qp->stop(s.now);
  s.inject(packet(Opcode::kRcSendOnly, 500, 4).to_srq(kSrq));
  EXPECT_EQ(int(s.expect(xrc(Opcode::kRcAck), 500).header.aeth.syndrome), int(syndrome::kRnrNak));
}

}  // namespace
}  // namespace ferry::transport::test
