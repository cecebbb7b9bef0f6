#include "wire/crc32.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace ferry::wire {
namespace {

std::uint32_t bitwise(std::uint32_t state, std::span<const std::byte> bytes) {
  for (std::byte byte : bytes) {
    state ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state & 1 ? state >> 1 ^ 0xEDB88320 : state >> 1;
  }
  return state;
}

TEST(Crc32, CheckValueOfTheCatalogue) {
  const char digits[] = "123456789";
  EXPECT_EQ(~crc32_update(kCrc32Init, std::as_bytes(std::span(digits).first(9))), 0xCBF43926u);
}

TEST(Crc32, EveryLengthAndAlignmentIsAsBitByBit) {
  std::mt19937 random(1);
  std::vector<std::byte> data(5000);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  for (std::size_t size = 0; size < 1100; ++size) {
    for (std::size_t start : {0u, 1u, 7u, 13u}) {
      std::span<const std::byte> part(data.data() + start, size);
      const std::uint32_t state = random();
      const std::uint32_t expected = bitwise(state, part);
      ASSERT_EQ(crc32_update(state, part), expected) << size << " bytes from " << start;
      ASSERT_EQ(crc32_update_by_table(state, part.data(), size), expected);
    }
  }
  for (std::size_t size : {1024u, 4096u, 4111u, 5000u}) {
    std::span<const std::byte> part(data.data(), size);
    EXPECT_EQ(crc32_update(0, part), bitwise(0, part));
  }
}

TEST(Crc32, PiecesGiveTheSameAsTheWhole) {
  std::mt19937 random(2);
  std::vector<std::byte> data(1000);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  const std::uint32_t whole = crc32_update(kCrc32Init, data);
  for (std::size_t cut = 0; cut <= data.size(); ++cut) {
    std::span<const std::byte> all(data);
    ASSERT_EQ(crc32_update(crc32_update(kCrc32Init, all.first(cut)), all.subspan(cut)), whole);
  }
}

TEST(Crc32, PowersOfXMultiplyAsExponentsAdd) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t a = random() >> 1, b = random() >> 1;
    ASSERT_EQ(crc32_multiply(crc32_x_to(a), crc32_x_to(b)), crc32_x_to(a + b));
    const std::uint32_t inverse = crc32_x_to(0xFFFFFFFF - a);
    ASSERT_EQ(crc32_multiply(crc32_x_to(a), inverse), crc32_x_to(0));
  }
}

}  // namespace
}  // namespace ferry::wire
