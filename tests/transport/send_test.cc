#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Send, OfOnePacket) {
  Script s;
  s.post(send(1, 100));
  const Out out = s.expect(Opcode::kRcSendOnly, 100);
  EXPECT_EQ(out.payload.size(), 100u);
  EXPECT_TRUE(std::equal(out.payload.begin(), out.payload.end(), s.host.memory().begin()));
  EXPECT_TRUE(out.header.ack_request);
  EXPECT_EQ(out.header.dest_qpn, kPeerQpn);
  EXPECT_TRUE(out.to == kPeer);
  s.inject(ack(100));
  s.expect_completion(1);
}

TEST(Send, OfManyPackets) {
  Script s;
  s.post(send(1, 3 * kMtu + 5));
  EXPECT_FALSE(s.expect(Opcode::kRcSendFirst, 100).header.ack_request);
  s.expect(Opcode::kRcSendMiddle, 101);
  s.expect(Opcode::kRcSendMiddle, 102);
  const Out last = s.expect(Opcode::kRcSendLast, 103);
  EXPECT_EQ(last.payload.size(), 5u);
  EXPECT_TRUE(last.header.ack_request);
  s.inject(ack(103));
  s.expect_completion(1);
}

TEST(Send, OfNothing) {
  Script s;
  s.post(send(1, 0));
  EXPECT_TRUE(s.expect(Opcode::kRcSendOnly, 100).payload.empty());
  s.inject(ack(100));
  s.expect_completion(1);
  s.post_receive(7);
  s.inject(packet(Opcode::kRcSendOnly, 500, 0).asks_ack());
  s.expect_ack(500);
  EXPECT_EQ(s.expect_receive(7).bytes, 0u);
}

TEST(Send, ImmediateAndSolicitedAreOnTheLastPacketOnly) {
  Script s;
  s.post(send(1, 2 * kMtu).immediate(0x01020304).solicited());
  EXPECT_FALSE(s.expect(Opcode::kRcSendFirst, 100).header.solicited);
  const Out last = s.expect(Opcode::kRcSendLastImm, 101);
  EXPECT_EQ(last.header.immediate, 0x01020304u);
  EXPECT_TRUE(last.header.solicited);
  s.post(send(2, 1).immediate(5));
  EXPECT_EQ(s.expect(Opcode::kRcSendOnlyImm, 102).header.immediate, 5u);
  s.inject(ack(102));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Send, PsnsWrap) {
  ScriptOptions options;
  options.rts.next_psn = 0xFFFFFE;
  options.rtr.expected_psn = 0xFFFFFF;
  Script s(options);
  s.post(send(1, 4 * kMtu));
  s.expect(Opcode::kRcSendFirst, 0xFFFFFE);
  s.expect(Opcode::kRcSendMiddle, 0xFFFFFF);
  s.expect(Opcode::kRcSendMiddle, 0);
  s.expect(Opcode::kRcSendLast, 1);
  s.inject(ack(0xFFFFFF));
  s.inject(ack(1));
  s.expect_completion(1);
  s.post_receive(9);
  s.inject(packet(Opcode::kRcSendFirst, 0xFFFFFF), packet(Opcode::kRcSendLast, 0, 1).asks_ack());
  s.expect_ack(0);
  EXPECT_EQ(s.expect_receive(9).bytes, kMtu + 1);
}

TEST(Send, IsGatheredAndInline) {
  Script s;
  Request gathered = send(1, 10);
  gathered.sges = {{100, 3, kLkey}, {500, 0, kLkey}, {200, 7, kLkey}};
  gathered.request.sge_count = 3;
  s.post(gathered);
  const Out out = s.expect(Opcode::kRcSendOnly, 100);
  EXPECT_EQ(out.payload[2], s.host.memory()[102]);
  EXPECT_EQ(out.payload[3], s.host.memory()[200]);

  std::byte data[64];
  for (int i = 0; i < 64; ++i) data[i] = std::byte(i);
  Request in_line = send(2, 64);
  in_line.request.inline_data = data;
  in_line.request.sge_count = 0;
  s.post(in_line);
  EXPECT_EQ(s.expect(Opcode::kRcSendOnly, 101).payload[63], std::byte{63});
  s.inject(ack(101));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Send, UnsignaledCompletesSilently) {
  Script s;
  s.post(send(1, 1).unsignaled());
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.inject(ack(101));
  s.expect_completion(2);
}

TEST(Send, IsReceived) {
  Script s;
  s.post_receive(7);
  s.inject(packet(Opcode::kRcSendFirst, 500), packet(Opcode::kRcSendMiddle, 501),
           packet(Opcode::kRcSendLastImm, 502, 10).immediate(0xABCD).solicited().asks_ack());
  const Out out = s.expect_ack(502);
  EXPECT_EQ(out.header.aeth.msn, 1u);
  const ReceiveCompletion completion = s.expect_receive(7);
  EXPECT_EQ(completion.bytes, 2 * kMtu + 10);
  EXPECT_TRUE(completion.has_immediate);
  EXPECT_TRUE(completion.solicited);
  EXPECT_FALSE(completion.is_write);
  EXPECT_EQ(completion.immediate, 0xABCDu);
  s.expect_memory(kReceive, 500, kMtu);
  s.expect_memory(kReceive + kMtu, 501, kMtu);
  s.expect_memory(kReceive + 2 * kMtu, 502, 10);
}

TEST(Send, DuplicateIsAcknowledgedAgainAndNotExecuted) {
  Script s;
  s.post_receive(7);
  s.post_receive(8);
  s.inject(packet(Opcode::kRcSendOnly, 500, 10).asks_ack());
  s.expect_ack(500);
  s.expect_receive(7);
  s.inject(packet(Opcode::kRcSendOnly, 500, 10).asks_ack());
  EXPECT_EQ(s.expect_ack(500).header.aeth.msn, 1u);
  EXPECT_EQ(s.host.receives_posted(), 1u);
}

TEST(Send, PostRefusesWhatDoesNotFit) {
  Script s;
  Request many = send(1, 4);
  many.sges.assign(5, {0, 1, kLkey});
  many.request.sge_count = 5;
  many.request.sges = many.sges.data();
  EXPECT_EQ(s.qp->post_send(many.request), EINVAL);
  std::byte data[65]{};
  EXPECT_EQ(s.qp->post_send({.length = 65, .inline_data = data}), EINVAL);
  EXPECT_EQ(s.qp->post_send({.length = kMaxMessage + 1}), EINVAL);
  EXPECT_EQ(s.qp->post_send({.operation = Operation::kRead, .inline_data = data}), EINVAL);
  ScriptOptions at_rtr;
  at_rtr.to_rts = false;
  Script early(at_rtr);
  EXPECT_EQ(early.qp->post_send({}), EINVAL);
  ScriptOptions small;
  small.limits.max_send_wr = 1;
  Script full(small);
  full.post(send(1, 1));
  EXPECT_EQ(full.qp->post_send({}), ENOMEM);
  full.expect_requests(100, 100);
  full.inject(ack(100));
  full.expect_completion(1);
}

TEST(Send, CommunicationEstablishedIsRaisedOnceInRtr) {
  ScriptOptions options;
  options.to_rts = false;
  Script s(options);
  s.post_receive(1);
  s.post_receive(2);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1), packet(Opcode::kRcSendOnly, 501, 1).asks_ack());
  s.expect_event(Host::Event::kCommunicationEstablished);
  EXPECT_TRUE(s.host.events.empty());
  s.expect_ack(501);
  s.expect_receive(1);
  s.expect_receive(2);
}

TEST(Send, PacketsFromElsewhereAreDropped) {
  Script s;
  s.post_receive(7);
  s.inject(packet(Opcode::kRcSendOnly, 500, 10).from(endpoint(3)),
           packet(Opcode::kRcSendOnly, 500, 10).pkey(0x1234));
  EXPECT_EQ(s.status().counters.dropped_forged, 2u);
  s.expect_silence();
  // A standard NIC's UDP source port is arbitrary, and it may be a limited member of the partition.
  s.inject(packet(Opcode::kRcSendOnly, 500, 10).from(endpoint(2, 50000)).pkey(0x7FFF).asks_ack());
  s.expect_ack(500);
  s.expect_receive(7);
}

}  // namespace
}  // namespace ferry::transport::test
