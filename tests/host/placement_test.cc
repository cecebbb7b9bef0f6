#include "host/checkpoint/restart/placement.h"

#include <gtest/gtest.h>

#include "ferry.pb.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using ferry::test::failure_of;

store::Program program(const std::string& host, std::uint64_t bytes) {
  return {"p", host, {}, {}, {{"0000-000000.zst", 1, bytes, ""}}};
}

store::Manifest manifest(std::vector<store::Program> programs) {
  return {"00000000000000aa", {}, {}, std::move(programs)};
}

v1::RestartRequest on(std::initializer_list<const char*> hosts) {
  v1::RestartRequest request;
  for (const char* host : hosts) request.add_hosts(host);
  return request;
}

using Placement = std::vector<Placed>;

TEST(Placement, ProgramsOfOneHostGoOnWhereTheyAreRestarted) {
  const auto one = manifest({program("h1", 1), program("h1", 1)});
  EXPECT_EQ(placement_of(one, {}, "h3"), (Placement{{"h3", {0, 1}}}));
}

TEST(Placement, ProgramsOfSeveralHostsGoOnWhereTheyWere) {
  const auto two = manifest({program("h1", 1), program("h2", 1), program("h1", 1)});
  EXPECT_EQ(placement_of(two, {}, "h3"), (Placement{{"h1", {0, 2}}, {"h2", {1}}}));
}

TEST(Placement, ThoseOfAHostGoWhereTheUserSays) {
  const auto two = manifest({program("h1", 1), program("h2", 1), program("h1", 1)});
  v1::RestartRequest request;
  (*request.mutable_map())["h1"] = "h4";
  EXPECT_EQ(placement_of(two, request, "h3"), (Placement{{"h4", {0, 2}}, {"h2", {1}}}));
  (*request.mutable_map())["h2"] = "h4";
  EXPECT_EQ(placement_of(two, request, "h3"), (Placement{{"h4", {0, 1, 2}}}));
  (*request.mutable_map())["h7"] = "h4";
  EXPECT_EQ(failure_of([&] { placement_of(two, request, "h3"); }),
            "no program of checkpoint 00000000000000aa ran on h7");
}

// The largest first, each to the host that has least.
TEST(Placement, ProgramsAreDealtOutByTheirSize) {
  const auto four =
      manifest({program("h1", 30), program("h1", 50), program("h2", 20), program("h2", 10)});
  EXPECT_EQ(placement_of(four, on({"h3", "h4"}), "h1"),
            (Placement{{"h4", {0, 2}}, {"h3", {1, 3}}}));
  EXPECT_EQ(placement_of(four, on({"h3"}), "h1"), (Placement{{"h3", {0, 1, 2, 3}}}));
  EXPECT_EQ(placement_of(manifest({program("h1", 1)}), on({"h3", "h4"}), "h1"),
            (Placement{{"h3", {0}}}));
  EXPECT_EQ(failure_of([&] {
              placement_of(four, on({"h3", "h3"}), "h1");
            }),
            "--on names a host twice");
  auto both = on({"h3"});
  (*both.mutable_map())["h1"] = "h4";
  EXPECT_EQ(failure_of([&] { placement_of(four, both, "h1"); }),
            "--on and --map do not go together");
}

}  // namespace
}  // namespace ferry::host
