#include "host/units/lab/lab.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "temporary.h"

namespace ferry::host {
namespace {

using nlohmann::json;
using test::failure_of;
using test::Folder;

// A network hook that notes what it is asked.
constexpr char kHook[] = R"(
echo "$*" >>"$(dirname "$0")/calls"
if [ "$1" = prepare ]; then
  cat >"$(dirname "$0")/source.json"
  echo "{\"name\": \"$2\", \"state\": \"restoring\", \"pid\": 0, \"netns\": \"/run/netns/$2.9\", \
\"instance\": \"$2.9\", \"log\": \"/x\", \"eth0\": {\"address\": \"10.0.0.1\"}}"
fi
if [ "$2" = broken.1 ]; then echo "no such bridge" >&2; exit 1; fi
)";

struct ContainersTest : testing::Test {
  Folder folder;
  std::string hook = folder.script("hook", kHook);
  LabRuntime containers{folder.path("containers"), hook};

  void add(const std::string& name, const json& record) {
    std::filesystem::create_directories(folder.path("containers/" + name));
    folder.write("containers/" + name + "/config.json", record.dump());
  }
  json record(const std::string& name) {
    return json::parse(folder.read("containers/" + name + "/config.json"));
  }
};

TEST_F(ContainersTest, ReadsRecords) {
  add("a", {{"name", "a"},
            {"state", "running"},
            {"pid", ::getpid()},
            {"instance", "a.1"},
            {"netns", "/run/netns/a.1"},
            {"log", "/l"}});
  add("b", {{"name", "b"}, {"state", "moved"}});
  folder.write("containers/broken", "");
  std::filesystem::create_directories(folder.path("containers/c"));
  folder.write("containers/c/config.json", "{");
  EXPECT_EQ(containers.all().size(), 2u);
  const auto a = containers.find("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->pid, ::getpid());
  EXPECT_EQ(a->netns, "/run/netns/a.1");
  EXPECT_EQ(a->log, "/l");
  for (const char* name : {"c", "nothing", "../a", "", "."})
    EXPECT_FALSE(containers.find(name)) << name;
  EXPECT_FALSE(containers.name_is_free("a"));
  EXPECT_TRUE(containers.name_is_free("b"));
  EXPECT_TRUE(containers.name_is_free("nothing"));
}

// A disk that is full for a while must not cost the record: what could be written of the new one is
// not put in place later.
TEST_F(ContainersTest, APartOfARecordIsNeverPublished) {
  add("a", {{"name", "a"}, {"state", "running"}, {"pid", 1}, {"instance", "a.1"}});
  const auto container = containers.find("a");
  ASSERT_TRUE(container);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::string failure = failure_of([&] { containers.stage_state(*container, "moved", 0); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(failure.find("cannot write"), std::string::npos) << failure;
  containers.publish_state(*container);
  EXPECT_EQ(record("a").at("state"), "running");
  containers.set_state(*container, "moved", 0);
  EXPECT_EQ(record("a").at("state"), "moved");
}

TEST_F(ContainersTest, SaysWhereAContainerHasGone) {
  add("a", {{"name", "a"}, {"state", "running"}, {"pid", 1}, {"instance", "a.1"}});
  const auto container = containers.find("a");
  containers.set_state(*container, "moved", 0, "h2");
  EXPECT_EQ(failure_of([&] { containers.describe("h1", "a"); }),
            "'a' has moved from h1 to h2; to move it on, on h2: ferry move a --to HOST");
  // Its move was rolled back.
  containers.set_state(*container, "running", 1);
  EXPECT_FALSE(record("a").contains("moved_to"));
  EXPECT_EQ(containers.describe("h1", "a").pid, 1);
}

TEST_F(ContainersTest, KnowsWhoseAProcessIs) {
  add("a", {{"name", "a"}, {"state", "running"}, {"pid", ::getpid()}, {"instance", "a.1"}});
  add("b", {{"name", "b"}, {"state", "exited"}, {"pid", ::getpid()}, {"instance", "b.1"}});
  ASSERT_TRUE(containers.container_of(::getpid()));
  EXPECT_EQ(containers.container_of(::getpid())->name, "a");
  EXPECT_FALSE(containers.container_of(1));
}

TEST_F(ContainersTest, AnArrivalGetsItsNetworkFromTheHook) {
  const auto arrived = containers.receive("a", R"({"from": "source"})");
  EXPECT_EQ(folder.read("source.json"), R"({"from": "source"})");
  EXPECT_EQ(arrived.instance, "a.9");
  EXPECT_EQ(record("a")["eth0"]["address"], "10.0.0.1");
  EXPECT_EQ(record("a")["state"], "restoring");
  containers.switch_network("activate", arrived.instance);
  EXPECT_EQ(folder.read("calls"), "prepare a\nactivate a.9\n");
  containers.set_state(arrived, "running", 77);
  EXPECT_EQ(record("a")["pid"], 77);
  EXPECT_EQ(record("a")["eth0"]["address"], "10.0.0.1");
  containers.record_exit(arrived, 3);
  EXPECT_EQ(record("a")["state"], "exited");
  EXPECT_EQ(folder.read("containers/a/exit"), "3\n");
  containers.forget(arrived);
  EXPECT_FALSE(std::filesystem::exists(folder.path("containers/a")));
}

TEST_F(ContainersTest, AnOlderInstanceTouchesNothing) {
  const auto old = containers.receive("a", "{}");
  add("a", {{"name", "a"}, {"state", "running"}, {"pid", 5}, {"instance", "a.10"}});
  containers.set_state(old, "moved", 0);
  containers.record_exit(old, 1);
  containers.forget(old);
  EXPECT_EQ(record("a")["state"], "running");
  EXPECT_FALSE(std::filesystem::exists(folder.path("containers/a/exit")));
}

TEST_F(ContainersTest, FailuresSayWhatTheHookSaid) {
  EXPECT_EQ(failure_of([&] { containers.switch_network("activate", "broken.1"); }),
            "cannot activate the network of 'broken.1': no such bridge");
  EXPECT_NE(failure_of([&] { containers.receive("../a", "{}"); }), "");
  EXPECT_NE(failure_of([] { parse_container("[]"); }), "");
  EXPECT_NE(failure_of([] { parse_container(R"({"name": 1})"); }), "");
  EXPECT_NE(failure_of([] { parse_container(R"({"name": "a", "pid": "x"})"); }), "");
}

}  // namespace
}  // namespace ferry::host
