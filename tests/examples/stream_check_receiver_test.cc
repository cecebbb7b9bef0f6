// What a QP may do wrong, done to a Receiver: each test plays one wrong RNIC.
#include "receiver.h"

#include <gtest/gtest.h>

#include <vector>

namespace stream_check {
namespace {

constexpr uint32_t kMaxHere = 512;
constexpr uint64_t kSlots = 8;
constexpr StreamId kPeer{0xabcd, 2, 0};

// The peer and its RNIC: posts in order, delivers at once. WRITEs 3, 7, 11, ... and SENDs 1, 3, 5,
// ... carry an immediate.
class ReceiverTest : public ::testing::Test {
 protected:
  using Buffer = std::vector<uint64_t>;

  uint8_t* slot(uint64_t sequence) {
    return reinterpret_cast<uint8_t*>(ring.data()) + sequence % kSlots * kMaxHere;
  }
  Buffer message(Op op, uint64_t sequence, uint8_t flags = 0) {
    Credits credits;
    credits.writes_before = writes;
    Buffer buffer(kMaxHere / 8);
    build_message(bytes(buffer), kPeer, op, sequence, flags, credits, kMaxHere);
    return buffer;
  }
  static uint8_t* bytes(Buffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.data()); }
  static uint32_t length(Op op, uint64_t sequence) {
    return message_length(kPeer, op, sequence, kMaxHere);
  }
  void deliver_send(uint64_t sequence) {
    Buffer buffer = message(Op::kSend, sequence);
    receiver.on_send(bytes(buffer), length(Op::kSend, sequence), immediate_of(sequence));
  }
  static std::optional<uint32_t> immediate_of(uint64_t sequence) {
    if (!carries_immediate(Op::kSend, sequence)) return std::nullopt;
    return static_cast<uint32_t>(sequence);
  }
  void place_write(uint64_t sequence) {
    build_message(slot(sequence), kPeer, Op::kWrite, sequence, 0, {}, kMaxHere);
  }
  void announce_write(uint64_t sequence) {
    receiver.on_write_with_immediate(static_cast<uint32_t>(sequence), length(Op::kWrite, sequence));
  }
  void write() {
    place_write(writes);
    if (carries_immediate(Op::kWrite, writes)) announce_write(writes);
    ++writes;
    receiver.release_writes();
  }
  void deliver_last() {
    Buffer buffer = message(Op::kControl, 0, kLastOfQp);
    receiver.on_send(bytes(buffer), kMinLength, std::nullopt);
  }
  void finish(uint64_t sent, uint64_t reads = 0) { receiver.finish({sent, writes, reads, 0}); }
  void expect(Op op, uint64_t received, uint64_t lost, uint64_t duplicated, uint64_t out_of_order,
              uint64_t corrupted) {
    const Counts& counts = receiver.counts(op);
    EXPECT_EQ(counts.received, received) << op_name(op);
    EXPECT_EQ(counts.lost, lost) << op_name(op);
    EXPECT_EQ(counts.duplicated, duplicated) << op_name(op);
    EXPECT_EQ(counts.out_of_order, out_of_order) << op_name(op);
    EXPECT_EQ(counts.corrupted, corrupted) << op_name(op);
    EXPECT_EQ(faults.total() > 0, lost + duplicated + out_of_order + corrupted > 0);
  }

  FaultLog faults;
  std::vector<uint64_t> ring = std::vector<uint64_t>(kSlots * kMaxHere / 8);
  Receiver receiver{kPeer,    kMaxHere, reinterpret_cast<uint8_t*>(ring.data()),
                    kMaxHere, kSlots,   &faults};
  uint64_t writes = 0;  // WRITEs that the peer posted
};

TEST_F(ReceiverTest, AFaultlessRunIsClean) {
  for (uint64_t s = 0; s < 100; ++s) {
    write();
    deliver_send(s);
    Buffer buffer = message(Op::kRead, s);
    receiver.on_read(bytes(buffer), s);
  }
  EXPECT_FALSE(receiver.complete({100, 100, 100, 0}));
  deliver_last();
  EXPECT_TRUE(receiver.complete({100, 100, 100, 0}));
  EXPECT_EQ(receiver.messages_consumed(), 125u);
  finish(100, 100);
  expect(Op::kSend, 100, 0, 0, 0, 0);
  expect(Op::kWrite, 100, 0, 0, 0, 0);
  expect(Op::kRead, 100, 0, 0, 0, 0);
}

// SEND

TEST_F(ReceiverTest, LostSend) {
  deliver_send(0);
  deliver_send(2);
  finish(3);
  expect(Op::kSend, 2, 1, 0, 0, 0);
}

TEST_F(ReceiverTest, LostTailIsNotComplete) {
  deliver_send(0);
  deliver_last();
  EXPECT_FALSE(receiver.complete({2, 0, 0, 0}));
  finish(2);
  expect(Op::kSend, 1, 1, 0, 0, 0);
}

TEST_F(ReceiverTest, DoubledSend) {
  deliver_send(0);
  deliver_send(0);
  finish(1);
  expect(Op::kSend, 1, 0, 1, 0, 0);
}

TEST_F(ReceiverTest, ReorderedSends) {
  deliver_send(1);
  deliver_send(0);
  finish(2);
  expect(Op::kSend, 2, 0, 0, 1, 0);
}

TEST_F(ReceiverTest, CorruptedSend) {
  Buffer buffer = message(Op::kSend, 0);
  bytes(buffer)[length(Op::kSend, 0) - 1] ^= 1;
  EXPECT_FALSE(receiver.on_send(bytes(buffer), length(Op::kSend, 0), std::nullopt));
  finish(1);
  expect(Op::kSend, 0, 0, 0, 0, 1);
}

TEST_F(ReceiverTest, SendCompletedBeforeItsData) {
  Buffer buffer(kMaxHere / 8);
  poison(bytes(buffer));
  receiver.on_send(bytes(buffer), length(Op::kSend, 0), std::nullopt);
  finish(1);
  expect(Op::kSend, 0, 0, 0, 0, 1);
}

TEST_F(ReceiverTest, WrongByteLen) {
  Buffer buffer = message(Op::kSend, 0);
  receiver.on_send(bytes(buffer), length(Op::kSend, 0) - 1, std::nullopt);
  finish(1);
  expect(Op::kSend, 0, 0, 0, 0, 1);
}

TEST_F(ReceiverTest, ImmediateLostWrongOrInvented) {
  Buffer zero = message(Op::kSend, 0);
  receiver.on_send(bytes(zero), length(Op::kSend, 0), 0u);
  Buffer one = message(Op::kSend, 1);
  receiver.on_send(bytes(one), length(Op::kSend, 1), std::nullopt);
  deliver_send(2);
  Buffer three = message(Op::kSend, 3);
  receiver.on_send(bytes(three), length(Op::kSend, 3), 4u);
  finish(4);
  expect(Op::kSend, 1, 0, 0, 0, 3);
}

// WRITE

TEST_F(ReceiverTest, LostPlainWrite) {
  write();
  writes += 1;  // posted and acknowledged, but never placed
  write();
  write();
  finish(0);
  expect(Op::kWrite, 3, 1, 0, 0, 0);
}

TEST_F(ReceiverTest, PlainWriteLandsAfterTheSendThatFollowsIt) {
  writes = 1;
  deliver_send(0);
  place_write(0);
  receiver.release_writes();
  finish(1);
  // Not there when it had to be; then it lands in a slot that was already judged.
  EXPECT_EQ(receiver.counts(Op::kWrite).lost, 1u);
  EXPECT_EQ(receiver.counts(Op::kWrite).duplicated, 1u);
}

TEST_F(ReceiverTest, LastPlainWriteLost) {
  write();
  writes += 1;
  deliver_last();
  finish(0);
  expect(Op::kWrite, 1, 1, 0, 0, 0);
}

TEST_F(ReceiverTest, LastMessageLostButWritesThere) {
  write();
  write();
  EXPECT_FALSE(receiver.complete({0, 2, 0, 0}));
  finish(0);
  expect(Op::kWrite, 2, 0, 0, 0, 0);
}

TEST_F(ReceiverTest, WriteExecutedTwice) {
  for (int i = 0; i < 4; ++i) write();
  place_write(3);  // again, after it was judged
  for (int i = 0; i < 3; ++i) write();
  place_write(7);
  announce_write(7);
  ++writes;
  finish(0);
  expect(Op::kWrite, 8, 0, 1, 0, 0);
}

TEST_F(ReceiverTest, OldWriteExecutedAgainOverANewOne) {
  for (int i = 0; i < 8; ++i) write();
  place_write(0);  // the slot of WRITE 8, which is overwritten by this
  writes = 9;
  deliver_last();
  finish(0);
  expect(Op::kWrite, 8, 1, 1, 0, 0);
}

TEST_F(ReceiverTest, CorruptedWrite) {
  place_write(0);
  slot(0)[kMinLength - 1] ^= 0x80;
  ++writes;
  deliver_last();
  finish(0);
  expect(Op::kWrite, 0, 0, 0, 0, 1);
}

TEST_F(ReceiverTest, WritesSwapped) {
  place_write(0);
  build_message(slot(1), kPeer, Op::kWrite, 2, 0, {}, kMaxHere);
  build_message(slot(2), kPeer, Op::kWrite, 1, 0, {}, kMaxHere);
  writes = 3;
  deliver_last();
  finish(0);
  expect(Op::kWrite, 3, 0, 0, 1, 0);
}

TEST_F(ReceiverTest, ImmediateOvertakenByASend) {
  for (int i = 0; i < 3; ++i) write();
  place_write(3);
  writes = 4;
  deliver_send(0);
  announce_write(3);
  finish(1);
  expect(Op::kWrite, 4, 0, 0, 1, 0);
}

TEST_F(ReceiverTest, ImmediateNeverCame) {
  for (int i = 0; i < 3; ++i) write();
  place_write(3);
  writes = 4;
  deliver_send(0);
  finish(1);
  EXPECT_EQ(receiver.counts(Op::kWrite).out_of_order, 1u);
  EXPECT_EQ(receiver.counts(Op::kWrite).corrupted, 1u);
}

TEST_F(ReceiverTest, ImmediateCameTwice) {
  for (int i = 0; i < 4; ++i) write();
  announce_write(3);
  finish(0);
  expect(Op::kWrite, 4, 0, 1, 0, 0);
}

TEST_F(ReceiverTest, ImpossibleImmediates) {
  write();
  receiver.on_write_with_immediate(2, 64);     // WRITE 2 carries none
  receiver.on_write_with_immediate(4003, 64);  // far beyond the credits
  EXPECT_EQ(receiver.counts(Op::kWrite).corrupted, 2u);
  write();
  finish(0);
  expect(Op::kWrite, 2, 0, 0, 0, 2);
}

// READ

TEST_F(ReceiverTest, ReadCompletedWithoutData) {
  Buffer buffer(kMaxHere / 8);
  poison(bytes(buffer));
  receiver.on_read(bytes(buffer), 0);
  finish(0, 1);
  expect(Op::kRead, 0, 0, 0, 0, 1);
}

TEST_F(ReceiverTest, StaleReadIsADuplicateAndALoss) {
  Buffer zero = message(Op::kRead, 0);
  receiver.on_read(bytes(zero), 0);
  receiver.on_read(bytes(zero), 1);
  finish(0, 2);
  expect(Op::kRead, 1, 1, 1, 0, 0);
}

TEST_F(ReceiverTest, ReadOfAHalfUpdatedSlot) {
  Buffer torn = message(Op::kRead, 31);
  const Buffer old = message(Op::kRead, 15);
  std::copy(old.end() - 4, old.end(), torn.end() - 4);
  for (uint64_t s = 0; s < 31; ++s) {
    Buffer buffer = message(Op::kRead, s);
    receiver.on_read(bytes(buffer), s);
  }
  receiver.on_read(bytes(torn), 31);
  finish(0, 32);
  expect(Op::kRead, 31, 0, 0, 0, 1);
}

TEST_F(ReceiverTest, ReadThatNeverCompletedIsLost) {
  Buffer zero = message(Op::kRead, 0);
  receiver.on_read(bytes(zero), 0);
  finish(0, 3);
  expect(Op::kRead, 1, 2, 0, 0, 0);
}

TEST_F(ReceiverTest, MessageOfTheWrongOp) {
  Buffer write_message = message(Op::kWrite, 0);
  receiver.on_send(bytes(write_message), length(Op::kWrite, 0), std::nullopt);
  receiver.on_read(bytes(write_message), 0);
  finish(1, 1);
  expect(Op::kSend, 0, 0, 0, 0, 1);
  expect(Op::kRead, 0, 0, 0, 0, 1);
}

}  // namespace
}  // namespace stream_check
