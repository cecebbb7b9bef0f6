#include "transport/script.h"

// ATOMIC WRITE (annex A19): 8 bytes in one store, answered as a READ of nothing.
namespace ferry::transport::test {
namespace {

In request_of(std::uint32_t psn, std::uint64_t address = kRemote, std::uint32_t length = 8) {
  return write_packet(Opcode::kRcAtomicWrite, psn, length, address, length);
}

TEST(AtomicWrite, CarriesEightBytes) {
  Script s;
  s.post(atomic_write(1));
  const Out out = s.expect(Opcode::kRcAtomicWrite, 100);
  EXPECT_EQ(out.header.reth.virtual_address, kRemote);
  EXPECT_EQ(out.header.reth.dma_length, 8u);
  ASSERT_EQ(out.payload.size(), 8u);
  EXPECT_EQ(out.payload[3], s.host.memory()[3]);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0));
  EXPECT_EQ(s.expect_completion(1).operation, Operation::kAtomicWrite);
}

TEST(AtomicWrite, MayBeInlineAndOfEightBytesOnly) {
  Script s;
  Request request = atomic_write(1);
  const std::byte data[9] = {std::byte{1}, std::byte{2}};
  request.request.inline_data = data;
  request.request.sge_count = 0;
  for (const std::uint64_t length : {7, 9}) {
    request.request.length = length;
    EXPECT_EQ(s.qp->post_send(request.request), EINVAL);
  }
  request.request.length = 8;
  s.post(request);
  EXPECT_EQ(s.expect(Opcode::kRcAtomicWrite, 100).payload[1], std::byte{2});
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0));
  s.expect_completion(1);
}

TEST(AtomicWrite, CountsAsOneOfMaxRdAtomicAndAFenceWaitsForIt) {
  ScriptOptions options;
  options.rts.max_rd_atomic = 1;
  Script s(options);
  s.post(atomic_write(1));
  s.post(atomic_write(2));
  s.post(send(3, 1).fenced());
  s.expect_requests(100, 100);
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 0));
  s.expect_completion(2);
  s.expect_requests(102, 102);
  s.inject(ack(102));
  s.expect_completion(3);

  options.rts.max_rd_atomic = 0;
  Script without(options);
  EXPECT_EQ(without.qp->post_send({.operation = Operation::kAtomicWrite, .length = 8}), EINVAL);
}

TEST(AtomicWrite, AnAcknowledgementDoesNotCompleteIt) {
  Script s;
  s.post(atomic_write(1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.inject(ack(101));
  s.expect_requests(100, 101);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0), ack(101));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(AtomicWrite, AnsweredWithDataIsABadResponse) {
  Script s;
  s.post(atomic_write(1));
  s.expect_requests(100, 100);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 8));
  s.expect_completion(1, Status::kBadResponse);
}

TEST(AtomicWrite, IsPlacedAndAnsweredInTheOrderOfPsns) {
  Script s;
  s.inject(read_request(500, kRemote + 64, kMtu + 1), request_of(502),
           read_request(503, kRemote, 8));
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseLast, 501);
  const Out out = s.expect(Opcode::kRcReadResponseOnly, 502);
  EXPECT_TRUE(out.payload.empty());
  EXPECT_EQ(out.header.aeth.msn, 2u);
  const Out after = s.expect(Opcode::kRcReadResponseOnly, 503);
  EXPECT_EQ(after.payload[7], payload_byte(502, 7));
  s.expect_memory(kRemote, 502, 8);
}

TEST(AtomicWrite, RepeatedIsAnsweredAndNotPlacedAgain) {
  Script s;
  s.inject(request_of(500));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  s.set_word(kRemote, 7);
  s.inject(request_of(500));
  EXPECT_TRUE(s.expect(Opcode::kRcReadResponseOnly, 500).payload.empty());
  EXPECT_EQ(s.word(kRemote), 7u);
}

TEST(AtomicWrite, WhoseResultIsNotKeptAnyMoreIsDropped) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 1;
  Script s(options);
  s.inject(request_of(500));
  s.inject(request_of(501));
  s.forget_output();
  s.inject(request_of(500));
  s.expect_silence();
  s.inject(request_of(501));
  s.expect(Opcode::kRcReadResponseOnly, 501);
}

TEST(AtomicWrite, RefusesWhatIsNotEightAlignedBytes) {
  for (const auto& in :
       {request_of(500, kRemote + 4), request_of(500, kRemote, 7), request_of(500, kRemote, 9),
        request_of(500, kRemote, 0), write_packet(Opcode::kRcAtomicWrite, 500, 8, kRemote, 16)}) {
    Script s;
    s.set_word(kRemote, 7);
    s.inject(in);
    s.expect_nak(500, syndrome::kNakInvalidRequest);
    s.expect_event(Host::Event::kQpRequestError);
    EXPECT_EQ(s.word(kRemote), 7u);
  }
}

TEST(AtomicWrite, WithoutTheRightIsRefused) {
  Script s;
  s.host.refuse_region = true;
  s.inject(request_of(500));
  s.expect_nak(500, syndrome::kNakRemoteAccess);
  s.expect_event(Host::Event::kQpAccessError);
}

TEST(AtomicWrite, BeyondMaxDestRdAtomicIsInvalid) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 1;
  Script s(options);
  s.inject(request_of(500), request_of(501));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  s.expect_nak(501, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
}

TEST(AtomicWrite, MovesAlongOnBothSides) {
  Script s(with_migration());
  s.become_ferry();
  s.post(atomic_write(1));
  s.expect_requests(100, 100);
  s.host.port_is_full = [] { return true; };
  s.inject(request_of(500));
  s.qp->stop(s.now);
  s.host.port_is_full = [] { return false; };
  s.set_word(kRemote, 7);
  s.move_to(endpoint(9, 61441), 0x4011);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  s.expect_message(MigrationType::kResume);
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = kPeerPsn,
                    .expected_psn = 101}));
  EXPECT_EQ(s.expect(Opcode::kRcAtomicWrite, 100).payload.size(), 8u);
  s.inject(request_of(500), packet(Opcode::kRcReadResponseOnly, 100, 0));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  EXPECT_EQ(s.word(kRemote), 7u);
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
