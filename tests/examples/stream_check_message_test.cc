#include "message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace stream_check {
namespace {

constexpr uint32_t kMax = 1024;
constexpr StreamId kStream{0x1234, 3, 1};

struct alignas(8) Buffer {
  uint8_t bytes[kMax] = {};
};

Inspection::State inspect(const Buffer& buffer, const StreamId& id = kStream) {
  return inspect_message(buffer.bytes, id, kMax).state;
}

TEST(Message, WhatIsBuiltIsGood) {
  std::set<uint32_t> lengths;
  for (uint64_t s = 0; s < 200; ++s) {
    Buffer buffer;
    const uint32_t length = build_message(buffer.bytes, kStream, Op::kWrite, s, 0, {}, kMax);
    lengths.insert(length);
    const Inspection found = inspect_message(buffer.bytes, kStream, kMax);
    ASSERT_EQ(found.state, Inspection::State::kGood) << found.detail;
    EXPECT_EQ(found.header.sequence, s);
    EXPECT_EQ(found.header.length, length);
    EXPECT_GE(length, kMinLength);
    EXPECT_LE(length, kMax);
  }
  EXPECT_GT(lengths.size(), 100u);
  EXPECT_EQ(lengths.count(kMax), 1u);
}

TEST(Message, TheSmallestSizeLeavesOneLength) {
  Buffer buffer;
  for (uint64_t s = 0; s < 40; ++s) {
    EXPECT_EQ(build_message(buffer.bytes, kStream, Op::kSend, s, 0, {}, kMinLength), kMinLength);
    EXPECT_EQ(inspect_message(buffer.bytes, kStream, kMinLength).state, Inspection::State::kGood);
  }
}

TEST(Message, EveryFlippedBitIsFound) {
  Buffer buffer;
  Credits credits;
  credits.writes_before = 77;
  const uint32_t length = build_message(buffer.bytes, kStream, Op::kSend, 5, 0, credits, kMax);
  for (uint32_t byte = 0; byte < length; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      buffer.bytes[byte] ^= static_cast<uint8_t>(1 << bit);
      ASSERT_NE(inspect(buffer), Inspection::State::kGood) << "byte " << byte << " bit " << bit;
      buffer.bytes[byte] ^= static_cast<uint8_t>(1 << bit);
    }
  }
  EXPECT_EQ(inspect(buffer), Inspection::State::kGood);
}

TEST(Message, ATornMessageIsFound) {
  // The head of one message over the tail of the one before it in the slot.
  Buffer older;
  Buffer newer;
  const uint32_t length = build_message(older.bytes, kStream, Op::kWrite, 15, 0, {}, kMax);
  ASSERT_EQ(length, kMax);
  build_message(newer.bytes, kStream, Op::kWrite, 31, 0, {}, kMax);
  for (size_t cut = 64; cut < kMax; cut += 64) {
    Buffer torn = older;
    std::memcpy(torn.bytes, newer.bytes, cut);
    EXPECT_EQ(inspect(torn), Inspection::State::kCorrupt) << cut;
  }
}

TEST(Message, OtherStreamsAreNotTaken) {
  Buffer buffer;
  build_message(buffer.bytes, kStream, Op::kSend, 5, 0, {}, kMax);
  EXPECT_EQ(inspect(buffer, {0x1235, 3, 1}), Inspection::State::kCorrupt) << "another session";
  EXPECT_EQ(inspect(buffer, {0x1234, 4, 1}), Inspection::State::kCorrupt) << "another QP";
  EXPECT_EQ(inspect(buffer, {0x1234, 3, 0}), Inspection::State::kCorrupt) << "another direction";
}

TEST(Message, APoisonedBufferIsEmpty) {
  Buffer buffer;
  build_message(buffer.bytes, kStream, Op::kSend, 5, 0, {}, kMax);
  poison(buffer.bytes);
  EXPECT_TRUE(is_poisoned(buffer.bytes));
  EXPECT_EQ(inspect(buffer), Inspection::State::kEmpty);
}

}  // namespace
}  // namespace stream_check
