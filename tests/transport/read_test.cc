#include <array>
#include <tuple>

#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Read, OccupiesAPsnPerResponse) {
  Script s;
  s.post(read(1, 2 * kMtu + 10));
  s.post(send(2, 1));
  const Out request = s.expect(Opcode::kRcReadRequest, 100);
  EXPECT_EQ(request.header.reth.virtual_address, kRemote);
  EXPECT_EQ(request.header.reth.dma_length, 2 * kMtu + 10);
  s.expect(Opcode::kRcSendOnly, 103);
  s.inject(packet(Opcode::kRcReadResponseFirst, 100), packet(Opcode::kRcReadResponseMiddle, 101),
           packet(Opcode::kRcReadResponseLast, 102, 10), ack(103));
  EXPECT_EQ(s.expect_completion(1).bytes, 2 * kMtu + 10);
  s.expect_completion(2);
  s.expect_memory(0, 100, kMtu);
  s.expect_memory(kMtu, 101, kMtu);
  s.expect_memory(2 * kMtu, 102, 10);
}

TEST(Read, OfNothing) {
  Script s;
  s.post(read(1, 0));
  s.expect(Opcode::kRcReadRequest, 100);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 0));
  s.expect_completion(1);
  s.inject(read_request(500, 0, 0).key(0xBAD));
  EXPECT_TRUE(s.expect(Opcode::kRcReadResponseOnly, 500).payload.empty());
}

TEST(Read, ResponseAcknowledgesWhatCameBefore) {
  Script s;
  s.post(send(1, 1));
  s.post(read(2, 10));
  s.expect_requests(100, 101);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Read, LostInTheMiddleIsAskedForFromTheMissingPsnOn) {
  Script s;
  s.post(read(1, 4 * kMtu));
  s.expect(Opcode::kRcReadRequest, 100);
  s.inject(packet(Opcode::kRcReadResponseFirst, 100), packet(Opcode::kRcReadResponseMiddle, 102));
  const Out again = s.expect(Opcode::kRcReadRequest, 101);
  EXPECT_EQ(again.header.reth.virtual_address, kRemote + kMtu);
  EXPECT_EQ(again.header.reth.dma_length, 3 * kMtu);
  s.inject(packet(Opcode::kRcReadResponseLast, 103));  // of the first request, out of place
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseFirst, 101), packet(Opcode::kRcReadResponseMiddle, 102),
           packet(Opcode::kRcReadResponseLast, 103));
  s.expect_completion(1);
  s.expect_memory(kMtu, 101, kMtu);
}

TEST(Read, AcknowledgementOfSomethingLaterMeansThatTheResponseWasLost) {
  Script s;
  s.post(read(1, 10));
  s.post(send(2, 1));
  s.expect(Opcode::kRcReadRequest, 100);
  s.expect(Opcode::kRcSendOnly, 101);
  s.inject(ack(101));
  s.expect(Opcode::kRcReadRequest, 100);
  s.expect(Opcode::kRcSendOnly, 101);
  s.inject(ack(101));  // the same once more: nothing new is known
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10), ack(101));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Read, MaxRdAtomicLimitsRequestsInFlight) {
  ScriptOptions options;
  options.rts.max_rd_atomic = 2;
  Script s(options);
  for (int i = 1; i <= 3; ++i) s.post(read(i, 10));
  s.post(send(4, 1));
  s.expect_requests(100, 101);
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10));
  s.expect_completion(1);
  s.expect_requests(102, 103);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10),
           packet(Opcode::kRcReadResponseOnly, 102, 10), ack(103));
  for (int i = 2; i <= 4; ++i) s.expect_completion(i);
}

TEST(Read, OfMuchIsAskedForInParts) {
  Script s;
  s.post(read(1, 64 * 1024 + 5));
  EXPECT_EQ(s.expect(Opcode::kRcReadRequest, 100).header.reth.dma_length, 64u * 1024);
  const Out second = s.expect(Opcode::kRcReadRequest, 164);
  EXPECT_EQ(second.header.reth.virtual_address, kRemote + 64 * 1024);
  EXPECT_EQ(second.header.reth.dma_length, 5u);
  // A part is asked for again up to its own end only: the responder has not promised more.
  s.inject(packet(Opcode::kRcReadResponseFirst, 100), packet(Opcode::kRcReadResponseMiddle, 102));
  EXPECT_EQ(s.expect(Opcode::kRcReadRequest, 101).header.reth.dma_length, 63u * 1024);
  for (std::uint32_t psn = 101; psn < 163; ++psn) {
    s.inject(
        packet(psn == 101 ? Opcode::kRcReadResponseFirst : Opcode::kRcReadResponseMiddle, psn));
  }
  s.inject(packet(Opcode::kRcReadResponseLast, 163));
  s.expect(Opcode::kRcReadRequest, 164);
  s.inject(packet(Opcode::kRcReadResponseOnly, 164, 5));
  EXPECT_EQ(s.expect_completion(1).bytes, 64u * 1024 + 5);
}

TEST(Read, FenceWaitsForReads) {
  Script s;
  s.post(read(1, 10));
  s.post(send(2, 1).fenced());
  s.post(send(3, 1));
  s.expect(Opcode::kRcReadRequest, 100);
  s.expect_silence();
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10));
  s.expect_completion(1);
  s.expect_requests(101, 102);
  s.inject(ack(102));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(Read, IsAnswered) {
  Script s;
  s.inject(read_request(500, kRemote, 2 * kMtu + 1), read_request(503, kRemote + 8, 16));
  const Out first = s.expect(Opcode::kRcReadResponseFirst, 500);
  EXPECT_EQ(first.payload[5], s.host.memory()[kRemote + 5]);
  EXPECT_EQ(first.header.aeth.msn, 1u);
  s.expect(Opcode::kRcReadResponseMiddle, 501);
  EXPECT_EQ(s.expect(Opcode::kRcReadResponseLast, 502).payload.size(), 1u);
  EXPECT_EQ(s.expect(Opcode::kRcReadResponseOnly, 503).header.aeth.msn, 2u);
}

TEST(Read, AcknowledgementsStayBehindResponses) {
  Script s;
  s.post_receive(1);
  s.inject(read_request(500, kRemote, kMtu + 1), packet(Opcode::kRcSendOnly, 502, 4).asks_ack());
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseLast, 501);
  s.expect_ack(502);
  s.expect_receive(1);
}

TEST(Read, DuplicateIsExecutedAgainWhollyOrFromItsMiddle) {
  Script s;
  s.inject(read_request(500, kRemote, 3 * kMtu));
  for (int i = 0; i < 3; ++i) s.forget_output();
  s.inject(read_request(500, kRemote, 3 * kMtu));
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseMiddle, 501);
  s.expect(Opcode::kRcReadResponseLast, 502);
  s.inject(read_request(501, kRemote + kMtu, 2 * kMtu));
  const Out first = s.expect(Opcode::kRcReadResponseFirst, 501);
  EXPECT_EQ(first.payload[0], s.host.memory()[kRemote + kMtu]);
  s.expect(Opcode::kRcReadResponseLast, 502);
  // Past what was asked for before: not a duplicate of anything.
  s.inject(read_request(502, kRemote, 2 * kMtu));
  s.expect_silence();
}

TEST(Read, ALateDuplicateWhoseRegionIsGoneIsDropped) {
  Script s;
  s.inject(read_request(500, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  s.host.refuse_region = true;  // deregistered
  s.inject(read_request(500, kRemote, 4));
  s.expect_silence();
  s.host.refuse_region = false;  // registered, and not mapped any more
  s.host.faulty.insert(kRemote);
  s.inject(read_request(500, kRemote, 4));
  s.expect_silence();
  EXPECT_TRUE(s.host.events.empty());
  s.host.faulty.clear();
  s.inject(read_request(501, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 501);
}

TEST(Read, DoubledByTheNetworkTakesNoNewReadsPlace) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 1;
  Script s(options);
  s.inject(read_request(500, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  s.inject(read_request(500, kRemote, 4), read_request(501, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 501);
}

TEST(Read, MoreThanMaxDestRdAtomicIsInvalid) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 1;
  Script s(options);
  s.inject(read_request(500, kRemote, 4), read_request(501, kRemote, 4));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  s.expect_nak(501, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
}

// As many as kernel devices take: perftest asks for as many as the peer's device says.
TEST(Read, AsManyAsMaxDestRdAtomicAreAnswered) {
  ScriptOptions options;
  options.rtr.max_dest_rd_atomic = 128;
  Script s(options);
  std::array<In, 129> requests;
  for (std::uint32_t i = 0; i < 129; ++i) requests[i] = read_request(500 + i, kRemote, 4);
  std::apply([&](const auto&... each) { s.inject(each...); }, requests);
  for (std::uint32_t i = 0; i < 128; ++i) s.expect(Opcode::kRcReadResponseOnly, 500 + i);
  s.expect_nak(628, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
}

TEST(Read, WithMaxRdAtomicZeroIsRefused) {
  ScriptOptions options;
  options.rts.max_rd_atomic = 0;
  Script s(options);
  EXPECT_EQ(s.qp->post_send({.operation = Operation::kRead}), EINVAL);
}

}  // namespace
}  // namespace ferry::transport::test
