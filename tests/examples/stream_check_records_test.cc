// Gaps and the series file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "clock.h"
#include "failure.h"
#include "gaps.h"
#include "series.h"

namespace stream_check {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(Gaps, TheLargestAreKeptWithTheirTime) {
  Gaps gaps;
  int64_t now = 5000 * kMs;
  gaps.completion(now, now + 7 * kMs);
  for (int64_t length = 1; length <= 100; ++length) {
    now += length * kMs;
    gaps.completion(now, now + 7 * kMs);
  }
  EXPECT_EQ(gaps.largest_ns(), 100 * kMs);
  const std::vector<Gap> largest = gaps.largest();
  ASSERT_EQ(largest.size(), Gaps::kKept);
  for (size_t i = 0; i < largest.size(); ++i) {
    EXPECT_EQ(largest[i].length_ns, static_cast<int64_t>(100 - i) * kMs);
  }
  EXPECT_EQ(largest[0].begin_realtime_ns, now + 7 * kMs - 100 * kMs);
}

TEST(Gaps, AStepBackOfTheClockIsNoGap) {
  Gaps gaps;
  gaps.completion(1000 * kMs, 0);
  gaps.completion(400 * kMs, 0);
  gaps.completion(403 * kMs, 0);
  EXPECT_EQ(gaps.clock_steps(), 1u);
  EXPECT_EQ(gaps.largest_ns(), 3 * kMs);
}

TEST(Gaps, NothingCountsAfterTheStop) {
  Gaps gaps;
  gaps.completion(1 * kMs, 0);
  gaps.completion(2 * kMs, 0);
  gaps.stop();
  gaps.completion(900 * kMs, 0);
  EXPECT_EQ(gaps.largest_ns(), 1 * kMs);
}

TEST(RunningTime, ClockStepsDoNotCount) {
  RunningTime time;
  time.tick(1'000'000 * kMs);
  time.tick(1'000'500 * kMs);
  time.tick(10 * kMs);                   // back
  time.tick(10 * kMs + 3600'000 * kMs);  // an hour ahead
  EXPECT_EQ(time.elapsed_ns(), 1500 * kMs);
}

TEST(Series, ALinePer10Milliseconds) {
  std::string path = ::testing::TempDir() + "stream_check_series_XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  {
    Series series(path);
    series.add(1'000'000 * kMs, 2, 100);
    series.add(1'000'009 * kMs, 1, 50);
    series.add(1'000'010 * kMs, 0, 0);
    series.add(1'000'250 * kMs, 4, 4);  // frozen in between
  }
  { Series again(path); }
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"1000.00 3 150", "1000.01 0 0", "1000.25 4 4"}));
  std::remove(path.c_str());
}

TEST(Series, AnImpossiblePathIsAFailure) {
  EXPECT_THROW(Series("/nonexistent/folder/series"), Failure);
}

}  // namespace
}  // namespace stream_check
