#include "host/history/expected_stop.h"

#include <gtest/gtest.h>

#include "ferry.pb.h"
#include "host/history/history.h"

namespace ferry::host {
namespace {

v1::PastMove moved(const std::string& program, const std::string& to, double blackout_ms) {
  v1::PastMove move;
  move.set_direction("out");
  move.set_kind("move");
  move.set_outcome("moved");
  move.set_program(program);
  move.set_to(to);
  move.mutable_parts()->set_blackout_ms(blackout_ms);
  return move;
}

TEST(ExpectedStop, OfAHostThatHasMovedLessThanThreeTimesIsAGuess) {
  const auto guess = expected_stop({}, "p", "h2");
  EXPECT_EQ(guess.moves, 0u);
  EXPECT_GT(guess.time.count(), 0);
  const auto expected = expected_stop({moved("p", "h2", 9000), moved("p", "h2", 9000)}, "p", "h2");
  EXPECT_EQ(expected.moves, 0u);
  EXPECT_EQ(expected.time, guess.time);
}

TEST(ExpectedStop, IsByTheMovesThatAreMostAlike) {
  std::vector<v1::PastMove> moves;
  const auto add = [&](const std::string& program, const std::string& to, double ms) {
    moves.insert(moves.end(), 3, moved(program, to, ms));
  };
  add("q", "h3", 10);
  EXPECT_EQ(expected_stop(moves, "p", "h2").time.count(), 10);
  add("q", "h2", 20);
  EXPECT_EQ(expected_stop(moves, "p", "h2").time.count(), 20);
  add("p", "h3", 30);
  EXPECT_EQ(expected_stop(moves, "p", "h2").time.count(), 30);
  add("p", "h2", 40);
  add("q", "h2", 50);
  auto expected = expected_stop(moves, "p", "h2");
  EXPECT_EQ(expected.time.count(), 40);
  EXPECT_EQ(expected.moves, 3u);
  expected = expected_stop(moves, "p", "h1");  // to any host
  EXPECT_EQ(expected.time.count(), 40);
  EXPECT_EQ(expected.moves, 6u);
}

TEST(ExpectedStop, IsAsLongAsThreeOfFourOfTheLatest) {
  std::vector<v1::PastMove> moves;
  for (const double ms : {900, 900, 100, 200, 300, 400, 500, 600, 700, 800}) {
    moves.push_back(moved("p", "h2", ms));
  }
  const auto expected = expected_stop(moves, "p", "h2");
  EXPECT_EQ(expected.moves, 8u);
  EXPECT_EQ(expected.time.count(), 600);
}

TEST(ExpectedStop, OfALongNameIsByTheNameThatTheHistoryHas) {
  const std::string name(History::kMostName + 40, 'p');
  const auto past = moved(name.substr(0, History::kMostName), "h2", 40);
  EXPECT_EQ(expected_stop({past, past, past}, name, "h2").moves, 3u);
}

TEST(ExpectedStop, IsWithoutWhatTheMemoryHasTaken) {
  auto move = moved("p", "h2", 150);
  move.mutable_parts()->set_ahead_rounds(3);
  move.mutable_parts()->set_ahead_bytes(1000 << 20);
  move.mutable_parts()->set_ahead_ms(2000);
  move.mutable_parts()->set_last_bytes(25 << 20);  // 50 ms
  EXPECT_EQ(expected_stop({move, move, move}, "p", "h2").time.count(), 150) << "CRIU took longer";
  move.mutable_parts()->set_transfer_ms(30);
  EXPECT_EQ(expected_stop({move, move, move}, "p", "h2").time.count(), 120)
      << "30 ms beyond the dump";
  move.mutable_parts()->set_transfer_ms(90);
  EXPECT_NEAR(expected_stop({move, move, move}, "p", "h2").time.count(), 100, 0.001);
}

TEST(ExpectedStop, IsNotByMovesThatTellNothing) {
  auto large = moved("p", "h2", 5000);
  large.mutable_parts()->set_image_bytes(1 << 30);
  auto failed = moved("p", "h2", 1);
  failed.set_outcome("failed");
  auto arrived = moved("p", "h2", 1);
  arrived.set_direction("in");
  auto checkpoint = moved("p", "h2", 1);
  checkpoint.set_kind("checkpoint");
  const auto unknown = moved("p", "h2", 0);
  auto group = moved("p", "h2", 1);
  group.set_group(5);
  for (const auto& move : {large, failed, arrived, checkpoint, unknown, group}) {
    EXPECT_EQ(expected_stop({move, move, move}, "p", "h2").moves, 0u);
  }
}

}  // namespace
}  // namespace ferry::host
