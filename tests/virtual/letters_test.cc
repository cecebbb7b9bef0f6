#include "virtual/messages/letters.h"

#include <gtest/gtest.h>

namespace ferry::virt {
namespace {

LetterBody introduction() {
  LetterBody body;
  body.kind = LetterKind::kSwitch;
  body.introduction.qpn = 0xABCDEF;
  body.introduction.gid.raw[3] = 9;
  body.introduction.rkeys = {{1, 2}, {0xFFFFFFFF, 3}};
  return body;
}

TEST(Letters, AreReadAsTheyWereWritten) {
  LetterBody got;
  ASSERT_TRUE(parse(encode(introduction()), &got));
  EXPECT_EQ(got.kind, LetterKind::kSwitch);
  EXPECT_EQ(got.introduction.qpn, 0xABCDEFu);
  EXPECT_EQ(got.introduction.gid.raw[3], 9);
  ASSERT_EQ(got.introduction.rkeys.size(), 2u);
  EXPECT_EQ(got.introduction.rkeys[1].known, 0xFFFFFFFFu);
  EXPECT_EQ(got.introduction.rkeys[1].real, 3u);
  ASSERT_TRUE(parse(encode({LetterKind::kSuspended, 77, {}}), &got));
  EXPECT_EQ(got.kind, LetterKind::kSuspended);
  EXPECT_EQ(got.attempt, 77u);
}

TEST(Letters, OfADisconnectionSayNothingButTheirKind) {
  LetterBody got;
  ASSERT_TRUE(parse(encode({LetterKind::kDisconnected}), &got));
  EXPECT_EQ(got.kind, LetterKind::kDisconnected);
  auto unknown = encode({LetterKind::kDisconnected});
  unknown[0] = std::byte{9};
  EXPECT_FALSE(parse(unknown, &got));
}

// By an upper bit of the attempt, of which a library that does not know it takes no notice.
TEST(Letters, IntroductionsSayWhetherTheKernelKnowsTheConnection) {
  for (const LetterKind kind : {LetterKind::kSwitch, LetterKind::kSwitched}) {
    for (const bool is_detached : {false, true}) {
      LetterBody body = introduction();
      body.kind = kind;
      body.introduction.is_detached = is_detached;
      LetterBody got;
      ASSERT_TRUE(parse(encode(body), &got));
      EXPECT_EQ(got.introduction.is_detached, is_detached);
      EXPECT_EQ(got.attempt, body.attempt);
      EXPECT_FALSE(got.asks_for_use);
      EXPECT_EQ(encode(body).size(), encode(introduction()).size());
    }
  }
}

// Behind those of MRs, in a form that an older library takes for keys of MRs.
TEST(Letters, KeysOfWindows) {
  LetterBody body = introduction();
  const std::size_t without = encode(body).size();
  body.introduction.window_rkeys = {{0x1205, 0x3406}, {0x1301, 0x1302}};
  const std::vector<std::byte> bytes = encode(body);
  EXPECT_EQ(bytes.size(), without + 3 * sizeof(Introduction::Key));
  LetterBody got;
  ASSERT_TRUE(parse(bytes, &got));
  EXPECT_EQ(got.introduction.rkeys.size(), 2u);
  ASSERT_EQ(got.introduction.window_rkeys.size(), 2u);
  EXPECT_EQ(got.introduction.window_rkeys[0].known, 0x1205u);
  EXPECT_EQ(got.introduction.window_rkeys[1].real, 0x1302u);
  body.introduction.rkeys.clear();
  ASSERT_TRUE(parse(encode(body), &got));
  EXPECT_TRUE(got.introduction.rkeys.empty());
  EXPECT_EQ(got.introduction.window_rkeys.size(), 2u);
  body.introduction.window_rkeys.clear();
  for (const std::uint32_t number : {0u, 1u, 0xFFFFFFFFu}) {
    body.introduction.rkeys = {{0, number}};
    EXPECT_FALSE(parse(encode(body), &got)) << "so many do not follow: " << number;
  }
}

// Of XRC targets, behind all keys.
TEST(Letters, NumbersOfXrcSrqs) {
  for (const bool have_windows : {false, true}) {
    LetterBody body = introduction();
    if (have_windows) body.introduction.window_rkeys = {{0x1205, 0x3406}};
    body.introduction.srqns = {{7, 9}, {8, 7}};
    LetterBody got;
    ASSERT_TRUE(parse(encode(body), &got));
    EXPECT_EQ(got.introduction.rkeys.size(), 2u);
    EXPECT_EQ(got.introduction.window_rkeys.size(), have_windows ? 1u : 0u);
    ASSERT_EQ(got.introduction.srqns.size(), 2u);
    EXPECT_EQ(got.introduction.srqns[0].known, 7u);
    EXPECT_EQ(got.introduction.srqns[1].real, 7u);
  }
  using Keys = std::vector<Introduction::Key>;
  constexpr std::uint32_t kOne = 1u << 31 | 1;
  for (const Keys& keys :
       {Keys{{0, 1u << 31}}, Keys{{0, kOne}}, Keys{{0, kOne}, {7, 9}, {1, 2}},
        Keys{{0, kOne}, {7, 9}, {0, kOne}, {8, 9}}, Keys{{0, kOne}, {7, 9}, {0, 1}, {8, 9}}}) {
    LetterBody body = introduction();
    body.introduction.rkeys = keys;
    LetterBody got;
    EXPECT_FALSE(parse(encode(body), &got)) << keys.size() << ' ' << keys[0].real;
  }
}

// By the upper bits of the attempt, which a library that does not know them repeats.
TEST(Letters, SuspensionsSayWhetherTheQpIsInUse) {
  for (const bool asks : {false, true}) {
    for (const bool is_in_use : {false, true}) {
      LetterBody body{LetterKind::kSuspended, 77};
      body.asks_for_use = asks;
      body.is_in_use = is_in_use;
      LetterBody got;
      ASSERT_TRUE(parse(encode(body), &got));
      EXPECT_EQ(got.attempt, 77u);
      EXPECT_EQ(got.asks_for_use, asks);
      EXPECT_EQ(got.is_in_use, is_in_use);
      EXPECT_EQ(encode(body).size(), encode(LetterBody{LetterKind::kSuspended, 77}).size());
    }
  }
}

TEST(Letters, AnythingElseIsRefused) {
  const std::vector<std::byte> good = encode(introduction());
  LetterBody got;
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse({good.data(), size}, &got)) << size;
  const auto changed = [&](std::size_t at, unsigned value) {
    std::vector<std::byte> bad = good;
    bad.resize(std::max(bad.size(), at + 1));
    bad[at] = static_cast<std::byte>(value);
    return parse(bad, &got);
  };
  EXPECT_FALSE(changed(good.size(), 0)) << "more than a letter";
  EXPECT_FALSE(changed(0, 0)) << "an unknown kind";
  EXPECT_FALSE(changed(0, 9)) << "an unknown kind";
  EXPECT_FALSE(changed(8, 1)) << "a QPN of 25 bits";
  EXPECT_FALSE(changed(28, 0xFF)) << "more keys than there are";
}

}  // namespace
}  // namespace ferry::virt
