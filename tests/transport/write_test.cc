#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Write, OfManyPackets) {
  Script s;
  s.post(write(1, 2 * kMtu + 1));
  const Out first = s.expect(Opcode::kRcWriteFirst, 100);
  EXPECT_EQ(first.header.reth.virtual_address, kRemote);
  EXPECT_EQ(first.header.reth.dma_length, 2 * kMtu + 1);
  EXPECT_EQ(first.header.reth.rkey, kRkey);
  s.expect(Opcode::kRcWriteMiddle, 101);
  EXPECT_TRUE(s.expect(Opcode::kRcWriteLast, 102).header.ack_request);
  s.inject(ack(102));
  s.expect_completion(1);
}

TEST(Write, WithImmediate) {
  Script s;
  s.post(write(1, kMtu + 1).immediate(9));
  s.expect(Opcode::kRcWriteFirst, 100);
  EXPECT_EQ(s.expect(Opcode::kRcWriteLastImm, 101).header.immediate, 9u);
  s.post(write(2, 0).immediate(10));
  EXPECT_EQ(s.expect(Opcode::kRcWriteOnlyImm, 102).header.reth.dma_length, 0u);
  s.inject(ack(102));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Write, IsPlacedWithoutAReceive) {
  Script s;
  s.inject(write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, kMtu + 3),
           packet(Opcode::kRcWriteLast, 501, 3).asks_ack());
  EXPECT_EQ(s.expect_ack(501).header.aeth.msn, 1u);
  s.expect_memory(kRemote, 500, kMtu);
  s.expect_memory(kRemote + kMtu, 501, 3);
}

TEST(Write, WithImmediateConsumesAReceive) {
  Script s;
  s.post_receive(4, 0);
  s.inject(write_packet(Opcode::kRcWriteOnlyImm, 500, 12, kRemote, 12).immediate(3).asks_ack());
  s.expect_ack(500);
  const ReceiveCompletion completion = s.expect_receive(4);
  EXPECT_TRUE(completion.is_write);
  EXPECT_EQ(completion.bytes, 12u);
  EXPECT_EQ(completion.immediate, 3u);
}

TEST(Write, WithImmediateAndNoReceiveWritesNothingOfTheLastPacket) {
  Script s;
  const std::byte before = s.host.memory()[kRemote + kMtu];
  s.inject(write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, kMtu + 1),
           packet(Opcode::kRcWriteLastImm, 501, 1).asks_ack());
  s.expect_nak(501, syndrome::kRnrNak | 12);
  EXPECT_EQ(s.host.memory()[kRemote + kMtu], before);
  s.post_receive(4, 0);
  s.inject(packet(Opcode::kRcWriteLastImm, 501, 1).asks_ack());
  s.expect_ack(501);
  EXPECT_EQ(s.expect_receive(4).bytes, kMtu + 1);
}

TEST(Write, OfNothingChecksNoKey) {
  Script s;
  s.inject(write_packet(Opcode::kRcWriteOnly, 500, 0, 0, 0).key(0xBAD).asks_ack());
  s.expect_ack(500);
}

TEST(Write, LengthMustBeThatOfTheReth) {
  struct Case {
    const char* what;
    In first;
    bool second;
    In packet;
  };
  const Case cases[] = {
      {"ONLY shorter", write_packet(Opcode::kRcWriteOnly, 500, 10, kRemote, 11), false, {}},
      {"FIRST alone is all",
       write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, kMtu),
       false,
       {}},
      {"FIRST not full", write_packet(Opcode::kRcWriteFirst, 500, 100, kRemote, 3000), false, {}},
      {"LAST too short", write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, kMtu + 9), true,
       packet(Opcode::kRcWriteLast, 501, 8)},
      {"LAST too long", write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, kMtu + 9), true,
       packet(Opcode::kRcWriteLast, 501, 10)},
      {"MIDDLE too many", write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, kMtu + 9), true,
       packet(Opcode::kRcWriteMiddle, 501)},
      {"over 2^31", write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, 0x80000001), false, {}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Script s;
    s.inject(one.first);
    if (one.second) s.inject(one.packet);
    s.expect_nak(one.second ? 501 : 500, syndrome::kNakInvalidRequest);
    s.expect_event(Host::Event::kQpRequestError);
    EXPECT_EQ(int(s.qp->state()), int(QpState::kError));
  }
}

TEST(Write, DuplicateIsNotWrittenAgain) {
  Script s;
  s.inject(write_packet(Opcode::kRcWriteOnly, 500, 4, kRemote, 4).asks_ack());
  s.expect_ack(500);
  s.host.memory()[kRemote] = std::byte{0x77};
  s.inject(write_packet(Opcode::kRcWriteOnly, 500, 4, kRemote, 4).asks_ack());
  s.expect_ack(500);
  EXPECT_EQ(s.host.memory()[kRemote], std::byte{0x77});
}

}  // namespace
}  // namespace ferry::transport::test
