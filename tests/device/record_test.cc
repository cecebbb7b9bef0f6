#include "device/record.h"

#include <gtest/gtest.h>

namespace ferry::device {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

TEST(Record, IsTypeVersionHandleLengthBody) {
  std::vector<std::byte> image;
  put_record(&image, ObjectType::kQp, 0x01020304, bytes({9, 8, 7}));
  EXPECT_EQ(image, bytes({5, 0, 1, 0, 4, 3, 2, 1, 3, 0, 0, 0, 9, 8, 7}));
}

TEST(Record, FollowsRecord) {
  std::vector<std::byte> image;
  put_record(&image, ObjectType::kPd, 1, {});
  put_record(&image, ObjectType::kMr, 2, bytes({1}));
  std::span<const std::byte> rest = image;
  Record record;
  ASSERT_TRUE(next_record(&rest, &record));
  EXPECT_EQ(record.type, ObjectType::kPd);
  EXPECT_EQ(record.handle, 1u);
  EXPECT_TRUE(record.body.empty());
  ASSERT_TRUE(next_record(&rest, &record));
  EXPECT_EQ(record.type, ObjectType::kMr);
  EXPECT_EQ(record.body.size(), 1u);
  EXPECT_TRUE(rest.empty());
  EXPECT_FALSE(next_record(&rest, &record));
}

TEST(Record, EveryTruncationIsRefused) {
  std::vector<std::byte> image;
  put_record(&image, ObjectType::kMr, 2, bytes({1, 2, 3}));
  for (std::size_t length = 0; length < image.size(); ++length) {
    std::span<const std::byte> rest = std::span(image).first(length);
    Record record;
    EXPECT_FALSE(next_record(&rest, &record)) << length;
    EXPECT_EQ(rest.size(), length);
  }
}

TEST(Record, OtherVersionsAreRefused) {
  for (int version : {0, 1, 2, 3, 255}) {
    auto image = bytes({1, 0, version, 0, 1, 0, 0, 0, 0, 0, 0, 0});
    std::span<const std::byte> rest = image;
    Record record;
    EXPECT_EQ(next_record(&rest, &record), version == 1 || version == 2) << version;
  }
}

}  // namespace
}  // namespace ferry::device
