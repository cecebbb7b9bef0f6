#include "cli/timeline.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferry.pb.h"
#include "temporary.h"

namespace ferry::cli {
namespace {

void add(Timeline& timeline, const std::string& host, const std::string& lane,
         const std::string& name, std::int64_t begin, std::int64_t end) {
  auto* span = timeline.Add();
  span->set_host(host);
  span->set_lane(lane);
  span->set_name(name);
  span->set_begin_us(begin);
  span->set_end_us(end);
}

TEST(Trace, HasAProcessForEachHostAndAThreadForEachLane) {
  Timeline timeline;
  add(timeline, "h1", "CRIU", "criu dump", 1'000'500, 1'001'000);
  add(timeline, "h1", "steps", "stop", 1'000'000, 1'000'500);
  add(timeline, "h2", "CRIU", "criu restore", 1'001'000, 1'002'000);
  const auto trace = nlohmann::json::parse(trace_of(timeline));
  std::vector<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      names.push_back(event["args"]["name"]);
    } else {
      names.push_back(fmt::format("{} {}/{} {}+{}", std::string(event["name"]), int(event["pid"]),
                                  int(event["tid"]), int(event["ts"]), int(event["dur"])));
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"h1", "CRIU", "criu dump 1/1 500+500", "steps",
                                             "stop 1/2 0+500", "h2", "CRIU",
                                             "criu restore 2/3 1000+1000"}));
}

TEST(Trace, OfNothingIsATraceToo) {
  EXPECT_TRUE(nlohmann::json::parse(trace_of({}))["traceEvents"].empty());
}

TEST(Trace, APlaceThatCannotBeWrittenIsRefusedBeforeTheMove) {
  const test::Folder folder;
  EXPECT_NO_THROW(need_place_for_timeline(folder.path("trace.json")));
  EXPECT_THROW(need_place_for_timeline(folder.path()), Failure);
  EXPECT_THROW(need_place_for_timeline(folder.path("none/trace.json")), Failure);
}

}  // namespace
}  // namespace ferry::cli
