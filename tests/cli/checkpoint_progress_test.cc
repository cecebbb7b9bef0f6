#include "cli/checkpoint/progress.h"

#include <gtest/gtest.h>

#include "ferry.pb.h"

namespace ferry::cli {
namespace {

v1::CheckpointProgress copied(std::uint64_t done, std::uint64_t total, double rate, double left) {
  v1::CheckpointProgress progress;
  progress.set_phase("store");
  progress.set_done_bytes(done);
  progress.set_total_bytes(total);
  progress.set_bytes_per_second(rate);
  progress.set_left_seconds(left);
  return progress;
}

TEST(CheckpointProgress, HasBytesRateAndTimeLeft) {
  EXPECT_EQ(text_of(copied(1'200'000'000, 4'000'000'000, 310e6, 8.2)),
            "store, 1.2 GB of 4.0 GB, 310.0 MB/s, 9 s left");
  EXPECT_EQ(text_of(copied(0, 4'000'000'000, 0, 0)), "store, 0 B of 4.0 GB");
  EXPECT_EQ(text_of(copied(1, 4'000'000'000, 1e6, 600)),
            "store, 1 B of 4.0 GB, 1.0 MB/s, 10 min left");
  EXPECT_EQ(text_of(copied(1, 4'000'000'000, 1e5, 9000)),
            "store, 1 B of 4.0 GB, 100.0 kB/s, 2.5 h left");
}

TEST(CheckpointProgress, HasTheStandstill) {
  v1::CheckpointProgress progress;
  progress.set_phase("check");
  EXPECT_EQ(text_of(progress), "check");
  progress.set_phase("stop");
  EXPECT_EQ(text_of(progress), "stop, the programs stand still");
  progress.set_phase("go on");
  EXPECT_EQ(text_of(progress), "go on");
  progress.set_standstill_ms(22.13);
  EXPECT_EQ(text_of(progress), "go on, standstill 22.1 ms");
}

}  // namespace
}  // namespace ferry::cli
