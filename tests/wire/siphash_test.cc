#include "wire/siphash.h"

#include <gtest/gtest.h>

#include <array>

namespace ferry::wire {
namespace {

// The reference vectors: key 00 01 .. 0f, message 00 01 .. of each length.
TEST(SipHash, ReferenceVectors) {
  std::array<std::byte, 16> message;
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i);
  auto hash = [&](std::size_t length) {
    return siphash24(0x0706050403020100, 0x0f0e0d0c0b0a0908, std::span(message).first(length));
  };
  EXPECT_EQ(hash(0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(hash(1), 0x74f839c593dc67fdu);
  EXPECT_EQ(hash(2), 0x0d6c8009d9a94f5au);
  EXPECT_EQ(hash(3), 0x85676696d7fb7e2du);
  EXPECT_EQ(hash(4), 0xcf2794e0277187b7u);
  EXPECT_EQ(hash(5), 0x18765564cd99a68du);
  EXPECT_EQ(hash(6), 0xcbc9466e58fee3ceu);
  EXPECT_EQ(hash(7), 0xab0200f58b01d137u);
  EXPECT_EQ(hash(8), 0x93f5f5799a932462u);
  EXPECT_EQ(hash(15), 0xa129ca6149be45e5u);  // the paper's appendix A
}

}  // namespace
}  // namespace ferry::wire
