#include <cerrno>

#include "transport/script.h"

// Atomics: clauses 9.4.5, 9.7.5.1.2 (responder resources) and 9.7.2 (requester).
namespace ferry::transport::test {
namespace {

// --- The requester

TEST(Atomic, FetchAddBringsTheOriginalInTheByteOrderOfTheHost) {
  Script s;
  s.post(fetch_add(1, 5));
  const Out out = s.expect(Opcode::kRcFetchAdd, 100);
  EXPECT_EQ(out.header.atomic.virtual_address, kRemote);
  EXPECT_EQ(out.header.atomic.rkey, kRkey);
  EXPECT_EQ(out.header.atomic.swap_or_add, 5u);
  EXPECT_EQ(out.header.atomic.compare, 0u);
  EXPECT_TRUE(out.payload.empty());
  s.inject(atomic_ack(100, 0x1122334455667788));
  const SendCompletion completion = s.expect_completion(1);
  EXPECT_EQ(completion.bytes, 8u);
  EXPECT_EQ(completion.operation, Operation::kFetchAdd);
  EXPECT_EQ(s.word(0), 0x1122334455667788u);
}

TEST(Atomic, CompareSwapCarriesBothOperands) {
  Script s;
  s.post(compare_swap(1, 7, 9));
  const Out out = s.expect(Opcode::kRcCompareSwap, 100);
  EXPECT_EQ(out.header.atomic.compare, 7u);
  EXPECT_EQ(out.header.atomic.swap_or_add, 9u);
  s.inject(atomic_ack(100, 7));
  EXPECT_EQ(s.expect_completion(1).operation, Operation::kCompareSwap);
}

TEST(Atomic, OriginalIsScatteredAndNoMoreThanIt) {
  Script s;
  Request request = fetch_add(1, 1);
  request.sges = {{0, 3, kLkey}, {100, 50, kLkey}};
  request.request.sge_count = 2;
  request.request.length = 53;
  const std::byte behind = s.host.memory()[105];
  s.post(request);
  s.expect_requests(100, 100);
  s.inject(atomic_ack(100, 0x1122334455667788));
  EXPECT_EQ(s.expect_completion(1).bytes, 8u);
  EXPECT_EQ(s.host.memory()[0], std::byte{0x88});
  EXPECT_EQ(s.host.memory()[2], std::byte{0x66});
  EXPECT_EQ(s.host.memory()[100], std::byte{0x55});
  EXPECT_EQ(s.host.memory()[104], std::byte{0x11});
  EXPECT_EQ(s.host.memory()[105], behind);
}

TEST(Atomic, NeedsEightBytesAndResourcesAndIsNotInline) {
  Script s;
  Request request = fetch_add(1, 1);
  request.request.sges = request.sges.data();
  EXPECT_EQ(s.qp->post_send(request.request), 0);
  s.run();
  s.expect_requests(100, 100);
  s.inject(atomic_ack(100, 0));
  s.expect_completion(1);
  request.request.length = 7;
  EXPECT_EQ(s.qp->post_send(request.request), EINVAL);
  request.request.length = 8;
  const std::byte data[8] = {};
  request.request.inline_data = data;
  EXPECT_EQ(s.qp->post_send(request.request), EINVAL);

  ScriptOptions options;
  options.rts.max_rd_atomic = 0;
  Script without(options);
  request.request.inline_data = nullptr;
  EXPECT_EQ(without.qp->post_send(request.request), EINVAL);
}

TEST(Atomic, MaxRdAtomicCountsReadsAndAtomicsTogether) {
  ScriptOptions options;
  options.rts.max_rd_atomic = 2;
  Script s(options);
  s.post(fetch_add(1, 1));
  s.post(read(2, 10));
  s.post(fetch_add(3, 1));
  s.post(send(4, 1));
  s.expect_requests(100, 101);
  s.expect_silence();
  s.inject(atomic_ack(100, 0));
  s.expect_completion(1);
  s.expect_requests(102, 103);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10), atomic_ack(102, 1), ack(103));
  for (int i = 2; i <= 4; ++i) s.expect_completion(i);
}

TEST(Atomic, AcknowledgementOfSomethingLaterMeansThatTheResponseWasLost) {
  Script s;
  s.post(fetch_add(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.inject(ack(101));
  EXPECT_EQ(s.expect(Opcode::kRcFetchAdd, 100).header.atomic.swap_or_add, 1u);
  s.expect(Opcode::kRcSendOnly, 101);
  s.inject(atomic_ack(100, 4), ack(101));
  s.expect_completion(1);
  s.expect_completion(2);
  EXPECT_EQ(s.word(0), 4u);
}

TEST(Atomic, IsAskedForAgainAfterATimeout) {
  Script s;
  s.post(compare_swap(1, 7, 9));
  s.expect_requests(100, 100);
  s.advance(milliseconds(68));
  const Out again = s.expect(Opcode::kRcCompareSwap, 100);
  EXPECT_EQ(again.header.atomic.compare, 7u);
  EXPECT_EQ(again.header.atomic.swap_or_add, 9u);
  // Both were answered.
  s.inject(atomic_ack(100, 7), atomic_ack(100, 8));
  s.expect_completion(1);
  EXPECT_EQ(s.word(0), 7u);
}

TEST(Atomic, LostOnItsWayIsSentAgain) {
  Script s;
  s.post(send(1, 1));
  s.post(fetch_add(2, 1));
  s.post(fetch_add(3, 2));
  s.expect_requests(100, 102);
  s.inject(nak(101, syndrome::kNakPsnSequence));
  s.expect_completion(1);
  s.expect_requests(101, 102);
  s.inject(atomic_ack(101, 0), atomic_ack(102, 1));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(Atomic, AnsweredAsAReadIsABadResponse) {
  Script s;
  s.post(fetch_add(1, 1));
  s.expect_requests(100, 100);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 8));
  s.expect_completion(1, Status::kBadResponse);

  Script other;
  other.post(read(1, 8));
  other.expect_requests(100, 100);
  other.inject(atomic_ack(100, 1));
  other.expect_completion(1, Status::kBadResponse);
}

TEST(Atomic, WhoseResultCannotBePlacedFails) {
  Script s;
  s.post(fetch_add(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.host.refuse_local = true;
  s.inject(atomic_ack(100, 1));
  s.expect_completion(1, Status::kLocalProtection);
  s.expect_completion(2, Status::kFlush);
}

TEST(Atomic, RefusedByThePeerCompletesWithTheReason) {
  const std::pair<std::uint8_t, Status> table[] = {
      {syndrome::kNakRemoteAccess, Status::kRemoteAccess},
      {syndrome::kNakInvalidRequest, Status::kRemoteInvalidRequest},
      {syndrome::kNakRemoteOperational, Status::kRemoteOperation}};
  for (const auto& [code, status] : table) {
    Script s;
    s.post(send(1, 1));
    s.post(fetch_add(2, 1));
    s.expect_requests(100, 101);
    s.inject(nak(101, code));
    s.expect_completion(1);
    s.expect_completion(2, status);
  }
}

// --- The responder

TEST(Atomic, IsCarriedOutOnceAndAnsweredAsOftenAsItIsAsked) {
  Script s;
  s.set_word(kRemote, 40);
  s.inject(fetch_add_request(500, kRemote, 2));
  const Out out = s.expect(Opcode::kRcAtomicAck, 500);
  EXPECT_EQ(out.header.original, 40u);
  EXPECT_EQ(out.header.aeth.msn, 1u);
  EXPECT_EQ(s.word(kRemote), 42u);
  for (int i = 0; i < 3; ++i) {
    s.inject(fetch_add_request(500, kRemote, 2));
    s.expect_original(500, 40);
  }
  EXPECT_EQ(s.word(kRemote), 42u);
  EXPECT_EQ(s.host.atomics, 1u);
  s.inject(fetch_add_request(501, kRemote, 1));
  s.expect_original(501, 42);
}

TEST(Atomic, CompareSwapStoresOnlyWhenEqual) {
  Script s;
  s.set_word(kRemote, 40);
  s.inject(compare_swap_request(500, kRemote, 41, 1));
  s.expect_original(500, 40);
  EXPECT_EQ(s.word(kRemote), 40u);
  s.inject(compare_swap_request(501, kRemote, 40, 0xFEDCBA9876543210));
  s.expect_original(501, 40);
  EXPECT_EQ(s.word(kRemote), 0xFEDCBA9876543210u);
}

TEST(Atomic, ResponsesLeaveInTheOrderOfPsns) {
  Script s;
  s.post_receive(1);
  s.set_word(kRemote, 40);
  s.inject(read_request(500, kRemote + 64, kMtu + 1), fetch_add_request(502, kRemote, 1),
           packet(Opcode::kRcSendOnly, 503, 4).asks_ack());
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseLast, 501);
  EXPECT_EQ(s.expect(Opcode::kRcAtomicAck, 502).header.aeth.msn, 2u);
  EXPECT_EQ(s.expect_ack(503).header.aeth.msn, 3u);
  s.expect_receive(1);
}

TEST(Atomic, RepeatedAfterLaterOnesAreAnsweredFirstAndWithTheirOwnResults) {
  Script s;
  s.set_word(kRemote, 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    s.inject(fetch_add_request(500 + i, kRemote, 10));
    s.expect_original(500 + i, 10 * i);
  }
  // In any order, as the network may bring them; in one batch they leave in the order of PSNs.
  s.inject(fetch_add_request(502, kRemote, 10), fetch_add_request(500, kRemote, 10),
           fetch_add_request(503, kRemote, 10), fetch_add_request(501, kRemote, 10));
  for (std::uint32_t i = 0; i < 4; ++i) s.expect_original(500 + i, 10 * i);
  EXPECT_EQ(s.word(kRemote), 40u);
}

TEST(Atomic, WhoseResultIsNotKeptAnyMoreIsDropped) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 2;
  Script s(options);
  s.set_word(kRemote, 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    s.inject(fetch_add_request(500 + i, kRemote, 1));
    s.expect_original(500 + i, i);
  }
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect_silence();
  s.inject(fetch_add_request(501, kRemote, 1));
  s.expect_original(501, 1);
  EXPECT_EQ(s.word(kRemote), 3u);
}

TEST(Atomic, ReadsTakeResourcesToo) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 2;
  Script s(options);
  s.inject(fetch_add_request(500, kRemote, 1));
  s.inject(read_request(501, kRemote, 4));
  s.forget_output();
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect(Opcode::kRcAtomicAck, 500);
  s.inject(read_request(502, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 502);
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect_silence();
  // A repeated READ takes none.
  s.inject(fetch_add_request(503, kRemote, 1));
  s.expect(Opcode::kRcAtomicAck, 503);
  s.inject(read_request(502, kRemote, 4), read_request(502, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 502);
  s.inject(fetch_add_request(503, kRemote, 1));
  s.expect(Opcode::kRcAtomicAck, 503);
  EXPECT_EQ(s.host.atomics, 2u);
}

TEST(Atomic, ThatWasASendIsNotAnsweredWhenRepeated) {
  Script s;
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 4));
  s.expect_receive(1);
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect_silence();
  EXPECT_EQ(s.host.atomics, 0u);
}

TEST(Atomic, MoreThanMaxDestRdAtomicIsInvalid) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 2;
  Script s(options);
  s.inject(fetch_add_request(500, kRemote, 1), fetch_add_request(501, kRemote, 1));
  s.expect(Opcode::kRcAtomicAck, 500);
  s.expect(Opcode::kRcAtomicAck, 501);
  s.inject(fetch_add_request(502, kRemote, 1), read_request(503, kRemote, 1),
           fetch_add_request(504, kRemote, 1));
  s.expect(Opcode::kRcAtomicAck, 502);
  s.expect(Opcode::kRcReadResponseOnly, 503);
  s.expect_nak(504, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
  EXPECT_EQ(s.host.atomics, 3u);
}

TEST(Atomic, WithoutResponderResourcesIsInvalid) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 0;
  Script s(options);
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect_nak(500, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
  EXPECT_EQ(s.host.atomics, 0u);
}

TEST(Atomic, DoubledByTheNetworkTakesNoNewOnesPlace) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 1;
  Script s(options);
  s.set_word(kRemote, 0);
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect_original(500, 0);
  s.inject(fetch_add_request(500, kRemote, 1), fetch_add_request(501, kRemote, 1));
  s.expect_original(501, 1);
}

TEST(Atomic, MustBeAligned) {
  for (const std::uint64_t offset : {1u, 4u, 7u}) {
    Script s;
    s.inject(fetch_add_request(500, kRemote + offset, 1));
    s.expect_nak(500, syndrome::kNakInvalidRequest);
    s.expect_event(Host::Event::kQpRequestError);
    EXPECT_EQ(s.host.atomics, 0u);
  }
}

TEST(Atomic, WithoutTheRightIsRefusedAndChangesNothing) {
  Script s;
  s.set_word(kRemote, 40);
  s.host.refuse_region = true;
  s.inject(fetch_add_request(500, kRemote, 1));
  s.expect_nak(500, syndrome::kNakRemoteAccess);
  s.expect_event(Host::Event::kQpAccessError);
  EXPECT_EQ(s.word(kRemote), 40u);

  Script unmapped;
  unmapped.host.faulty.insert(kRemote + 3);
  unmapped.inject(fetch_add_request(500, kRemote, 1));
  unmapped.expect_nak(500, syndrome::kNakRemoteAccess);
  unmapped.expect_event(Host::Event::kQpAccessError);
}

TEST(Atomic, InTheMiddleOfAMessageIsInvalid) {
  Script s;
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendFirst, 500), fetch_add_request(501, kRemote, 1));
  s.expect_nak(501, syndrome::kNakInvalidRequest);
  s.expect_receive(1, Status::kLocalQpOperation);
  EXPECT_EQ(s.host.atomics, 0u);
}

// --- Across a move

const port::Endpoint kNewPlace = endpoint(9, 61441);
constexpr std::uint32_t kNewQpn = 0x4011;

In resume_ack(std::uint32_t expected) {
  return message({.type = MigrationType::kResumeAck,
                  .epoch = 1,
                  .wire_qpn = kPeerQpn,
                  .first_unacked_psn = kPeerPsn,
                  .expected_psn = expected});
}

void move(Script& s) {
  s.qp->stop(s.now);
  s.expect_message(MigrationType::kPause);
  s.move_to(kNewPlace, kNewQpn);
  s.qp->resume(kNewQpn, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
}

// The request has arrived and its response is lost: the peer's ePSN is past it, and it is asked for
// again under its PSN all the same.
TEST(Atomic, UnansweredAtAStopIsAskedForAgainUnderItsPsn) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.post(compare_swap(2, 7, 9));
  s.post(fetch_add(3, 5));
  s.post(send(4, 1));
  s.expect_requests(100, 103);
  move(s);
  s.inject(resume_ack(104));
  s.expect_completion(1);
  const Out again = s.expect(Opcode::kRcCompareSwap, 101);
  EXPECT_EQ(again.header.atomic.compare, 7u);
  EXPECT_EQ(again.header.atomic.swap_or_add, 9u);
  EXPECT_EQ(s.expect(Opcode::kRcFetchAdd, 102).header.atomic.swap_or_add, 5u);
  s.expect_requests(103, 103);
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(atomic_ack(101, 7), atomic_ack(102, 9), ack(103));
  for (int i = 2; i <= 4; ++i) s.expect_completion(i);
}

TEST(Atomic, ResumeOfThePeerNeverCompletesOne) {
  Script s(with_migration());
  s.become_ferry();
  s.post(fetch_add(1, 5));
  s.expect_requests(100, 100);
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 1,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 101})
               .from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  EXPECT_TRUE(s.host.sent.empty());
  EXPECT_EQ(s.expect(Opcode::kRcFetchAdd, 100).header.dest_qpn, 0x8022u);
  s.inject(atomic_ack(100, 1).from(kNewPlace));
  s.expect_completion(1);
}

// Carried out before the stop, answered or not: the results move along.
TEST(Atomic, RepeatedAtTheNewPlaceIsAnsweredAndNotCarriedOut) {
  for (const bool answered : {false, true}) {
    Script s(with_migration());
    s.become_ferry();
    s.set_word(kRemote, 40);
    s.host.port_is_full = [&] { return !answered; };
    s.inject(fetch_add_request(500, kRemote, 1), compare_swap_request(501, kRemote, 41, 7));
    s.host.port_is_full = [] { return false; };
    if (answered) {
      s.expect_original(500, 40);
      s.expect_original(501, 41);
    }
    move(s);
    s.inject(resume_ack(100));
    s.expect_silence();  // it will ask
    s.inject(fetch_add_request(500, kRemote, 1), compare_swap_request(501, kRemote, 41, 7));
    s.expect_original(500, 40);
    s.expect_original(501, 41);
    EXPECT_EQ(s.word(kRemote), 7u);
    EXPECT_EQ(s.host.atomics, 2u);
  }
}

TEST(Atomic, WaitsWhileThePeerIsStopped) {
  Script s(with_migration());
  s.become_ferry();
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.post(fetch_add(1, 5));
  s.expect_silence();
  s.inject(message({.type = MigrationType::kResume,
                    .epoch = 1,
                    .wire_qpn = 0x8022,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 100})
               .from(kNewPlace));
  s.expect_message(MigrationType::kResumeAck, kNewPlace);
  s.expect(Opcode::kRcFetchAdd, 100);
  s.inject(atomic_ack(100, 1).from(kNewPlace));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
