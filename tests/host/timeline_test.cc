#include "host/timeline/timeline.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <sstream>

#include "ferry.pb.h"
#include "host/timeline/criu_log.h"
#include "host/timeline/timeline_message.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using Moment = Timeline::Clock::time_point;

Moment at(std::chrono::microseconds time) {
  return Moment(time);
}

TEST(Timeline, WhatHasNotEndedEndsNow) {
  Timeline timeline;
  { const auto done = timeline.step("a", "done"); }
  const auto open = timeline.step("a", "open");
  const auto now = Timeline::Clock::now();
  const auto spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].begin);
  EXPECT_GE(spans[1].end, now);
}

// CRIU has called the script at 1 s.
std::vector<Timeline::Span> spans_of_log(const std::string& text, const std::string& script) {
  std::istringstream log(text);
  std::vector<Timeline::Span> spans{{kCallLane, script, at(2s), at(2s)},
                                    {kScriptLane, script, at(1s), at(2s)}};
  add_log(log, script, &spans);
  spans.erase(spans.begin(), spans.begin() + 2);
  return spans;
}

TEST(CriuLog, LinesLastUntilTheNextOneAndShortOnesAreLeftOut) {
  const auto spans = spans_of_log(
      "(00.000000) Version: 4.2.1\n"
      "(00.001000) Freezing\n"
      "(00.001050) Frozen\n"
      "(00.021050)\t 17: Dumping\ttask\n"
      "and more of it\n"
      "(00.030000) Running post-dump scripts\n"
      "(00.031000) Dump ended\n",
      "post-dump");
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].name, "Version: 4.2.1");
  EXPECT_EQ(spans[1].name, "Frozen");
  EXPECT_EQ(spans[1].begin, at(1s - 28'950us));
  EXPECT_EQ(spans[1].end, at(1s - 8'950us));
  EXPECT_EQ(spans[2].name, "17: Dumping task");
  EXPECT_EQ(spans[3].name, "Running post-dump scripts");
  EXPECT_EQ(spans[3].begin, at(1s));
}

TEST(CriuLog, WithoutTheScriptNobodyKnowsWhenItWas) {
  const std::string text = "(00.000000) Version: 4.2.1\n(00.500000) Running post-dump scripts\n";
  EXPECT_FALSE(spans_of_log(text, "post-dump").empty());
  EXPECT_TRUE(spans_of_log(text, "post-restore").empty());
  std::istringstream log(text);
  std::vector<Timeline::Span> spans;
  add_log(log, "post-dump", &spans);
  EXPECT_TRUE(spans.empty());
}

TEST(CriuLog, WhatIsNoLogIsNothing) {
  EXPECT_TRUE(spans_of_log("(nan) a\n(-1.0) b\n(1e99) c\n(00.1 d\n()\n(\n\n(00.000001)\n"
                           "(00.000001) Running post-dump scripts\n",
                           "post-dump")
                  .empty());
}

TimelineMessage message_of(const std::vector<Timeline::Span>& spans) {
  TimelineMessage message;
  to_message(spans, "h2", &message);
  return message;
}

TEST(TimelineMessage, TheMiddlesOfTheCallAreTheSameMoment) {
  const std::vector<Timeline::Span> own{{kCallLane, kRestoreCall, at(100ms), at(140ms)}};
  const auto theirs = message_of({{kCallLane, kRestoreCall, at(9000ms), at(9030ms)},
                                  {"CRIU", "criu restore", at(9010ms), at(9020ms)}});
  TimelineMessage all;
  add_theirs(own, theirs, "h2", &all);
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].begin_us(), 105'000);
  EXPECT_EQ(all[0].end_us(), 135'000);
  EXPECT_EQ(all[1].begin_us(), 115'000);
  EXPECT_EQ(all[1].host(), "h2");
  EXPECT_EQ(all[1].lane(), "CRIU");
}

TEST(TimelineMessage, WithoutTheCallNothingIsAdded) {
  TimelineMessage all;
  add_theirs({}, message_of({{kCallLane, kRestoreCall, at(1s), at(2s)}}), "h2", &all);
  add_theirs({{kCallLane, kRestoreCall, at(1s), at(2s)}}, message_of({{"a", "b", at(1s), at(2s)}}),
             "h2", &all);
  EXPECT_TRUE(all.empty());
}

TEST(TimelineMessage, OfAnotherHostIsNotBelieved) {
  auto theirs = message_of({{kCallLane, kRestoreCall, at(1s), at(2s)}, {"a", "b", at(1s), at(2s)}});
  theirs[1].set_begin_us(-1);
  *theirs.Add() = theirs[0];
  theirs[2].set_end_us(0);
  *theirs.Add() = theirs[0];
  theirs[3].set_end_us(std::numeric_limits<std::int64_t>::max());
  theirs[1].set_name(std::string(1000, 'n') + "\n");
  *theirs.Add() = theirs[1];
  theirs[4].set_begin_us(0);
  for (int i = 0; i < 20'000; ++i) *theirs.Add() = theirs[0];
  TimelineMessage all;
  add_theirs({{kCallLane, kRestoreCall, at(1s), at(2s)}}, theirs, "h2", &all);
  EXPECT_EQ(all.size(), kMostTold);
  for (const auto& span : all) {
    EXPECT_LE(span.begin_us(), span.end_us());
    EXPECT_LE(span.name().size(), 160u);
  }
  EXPECT_EQ(all[1].name(), std::string(160, 'n'));
}

}  // namespace
}  // namespace ferry::host
