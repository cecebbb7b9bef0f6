// What PD Stack reaches at 250 MHz behind PCIe 3.0 x16; in cycles, and so the same on each machine.

#include <gtest/gtest.h>

#include "pipe_rtl.h"

namespace ferry::pipe {
namespace {

TEST(RtlFiguresTest, ThroughputIsThatOfThePaperOrMore) {
  EXPECT_GE(throughput_of(4096), 85.0);
  EXPECT_GE(throughput_of(4096, 13), 85.0);
  EXPECT_GE(throughput_of(65536), 85.0);
  EXPECT_LE(throughput_of(4096), 110.0) << "more than the link carries";
}

TEST(RtlFiguresTest, LatencyIsAFewMicroseconds) {
  for (const std::size_t message : {std::size_t{64}, std::size_t{8192}}) {
    const auto latencies = latencies_of(message);
    EXPECT_GE(latencies.front(), 1.5) << "less than six ways over PCIe";
    EXPECT_LE(latencies.back(), 4.0);
  }
}

}  // namespace
}  // namespace ferry::pipe
