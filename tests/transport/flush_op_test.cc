#include "transport/script.h"

// FLUSH (annex A19): answered as a READ of nothing when what was written is where it should be.
namespace ferry::transport::test {
namespace {

using wire::Feth;

In request_of(std::uint32_t psn, Feth what, std::uint32_t length = 4096,
              std::uint64_t address = kRemote) {
  In in = packet(Opcode::kRcFlush, psn, 0);
  in.header.feth = what;
  in.header.reth = {address, kRkey, length};
  return in;
}
constexpr Feth kVisible{Feth::kGlobalVisibility, Feth::kRange};

TEST(Flush, CarriesWhatIsToBeFlushed) {
  Script s;
  s.post(flush(1, 1 << 20, {Feth::kPersistence, Feth::kWholeRegion}));
  const Out out = s.expect(Opcode::kRcFlush, 100);
  EXPECT_EQ(out.header.feth.placement, Feth::kPersistence);
  EXPECT_EQ(out.header.feth.selectivity, Feth::kWholeRegion);
  EXPECT_EQ(out.header.reth.virtual_address, kRemote);
  EXPECT_EQ(out.header.reth.dma_length, 1u << 20);
  s.post(send(2, 1));  // it has one PSN, whatever its range
  s.expect_requests(101, 101);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0), ack(101));
  EXPECT_EQ(s.expect_completion(1).operation, Operation::kFlush);
  s.expect_completion(2);
}

TEST(Flush, CountsAsOneOfMaxRdAtomicAndIsRepeatedWhenUnanswered) {
  ScriptOptions options;
  options.rts.max_rd_atomic = 1;
  Script s(options);
  s.post(flush(1, 10, kVisible));
  s.post(read(2, 10));
  s.expect_requests(100, 100);
  s.expect_silence();
  s.advance(milliseconds(68));
  s.expect(Opcode::kRcFlush, 100);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(2);

  options.rts.max_rd_atomic = 0;
  Script without(options);
  EXPECT_EQ(without.qp->post_send({.operation = Operation::kFlush, .length = 8}), EINVAL);
}

TEST(Flush, IsCarriedOutAfterTheWritesBeforeItAndAnswered) {
  Script s;
  s.inject(write_packet(Opcode::kRcWriteOnly, 500, 64, kRemote, 64), request_of(501, kVisible));
  const Out out = s.expect(Opcode::kRcReadResponseOnly, 501);
  EXPECT_TRUE(out.payload.empty());
  EXPECT_EQ(out.header.aeth.msn, 2u);
  ASSERT_EQ(s.host.memory_flushes.size(), 1u);
  EXPECT_EQ(s.host.memory_flushes.front().placement, Feth::kGlobalVisibility);
  s.expect_memory(kRemote, 500, 64);
  // Repeated, it is answered again.
  s.inject(request_of(501, kVisible));
  s.expect(Opcode::kRcReadResponseOnly, 501);
  EXPECT_EQ(s.host.memory_flushes.size(), 1u);
}

TEST(Flush, ResponsesLeaveInTheOrderOfPsns) {
  Script s;
  s.inject(read_request(500, kRemote, kMtu + 1), request_of(502, kVisible),
           fetch_add_request(503, kRemote, 1));
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseLast, 501);
  s.expect(Opcode::kRcReadResponseOnly, 502);
  s.expect(Opcode::kRcAtomicAck, 503);
}

TEST(Flush, OfBothPlacementsAndOfTheWholeRegion) {
  Script s;
  const Feth both{Feth::kGlobalVisibility | Feth::kPersistence, Feth::kWholeRegion};
  s.inject(request_of(500, both, 0, ~0ull));  // the range is not looked at
  s.expect(Opcode::kRcReadResponseOnly, 500);
  EXPECT_EQ(s.host.memory_flushes.front().selectivity, Feth::kWholeRegion);
}

TEST(Flush, OfAnUnknownKindIsInvalid) {
  for (const Feth what : {Feth{0, 0}, Feth{4, 0}, Feth{5, 0}, Feth{1, 2}, Feth{1, 3}}) {
    Script s;
    s.inject(request_of(500, what));
    s.expect_nak(500, syndrome::kNakInvalidRequest);
    s.expect_event(Host::Event::kQpRequestError);
    EXPECT_TRUE(s.host.memory_flushes.empty());
  }
}

TEST(Flush, OfTooMuchIsInvalid) {
  Script s;
  s.inject(request_of(500, kVisible, (1u << 31) + 1));
  s.expect_nak(500, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
}

TEST(Flush, WithoutTheRightIsRefused) {
  Script s;
  s.host.refuse_region = true;
  s.inject(request_of(500, kVisible));
  s.expect_nak(500, syndrome::kNakRemoteAccess);
  s.expect_event(Host::Event::kQpAccessError);
  Script outside;
  outside.inject(request_of(500, kVisible, 2, (1 << 20) - 1));
  outside.expect_nak(500, syndrome::kNakRemoteAccess);
  outside.expect_event(Host::Event::kQpAccessError);
}

TEST(Flush, MovesAlong) {
  Script s(with_migration());
  s.become_ferry();
  s.post(flush(1, 77, {Feth::kPersistence, Feth::kRange}));
  s.expect_requests(100, 100);
  s.inject(request_of(500, kVisible));
  s.expect(Opcode::kRcReadResponseOnly, 500);
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
  const Out out = s.expect(Opcode::kRcFlush, 100);
  EXPECT_EQ(out.header.reth.dma_length, 77u);
  EXPECT_EQ(out.header.feth.placement, Feth::kPersistence);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0), request_of(500, kVisible));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  EXPECT_EQ(s.host.memory_flushes.size(), 1u);
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
