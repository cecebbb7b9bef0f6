#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "host/proc/process_tree.h"
#include "host/units/bundle.h"
#include "host/units/runc/runc.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using nlohmann::json;
using test::failure_of;
using test::Folder;

struct RuncTest : testing::Test {
  Folder folder;
  Runc runc{folder.path("records"), "true", folder.path("runc")};

  // What runc knows of a container whose first process this is.
  void add(const std::string& id, json labels = json::array()) {
    labels.push_back("bundle=" + folder.path());
    std::filesystem::create_directories(folder.path("runc/" + id));
    folder.write("runc/" + id + "/state.json",
                 json{{"init_process_pid", ::getpid()},
                      {"init_process_start", start_time(::getpid())},
                      {"cgroup_paths", {{"freezer", folder.path()}}},
                      {"config", {{"labels", labels}}},
                      {"external_descriptors", {"/dev/null", "pipe:[1]", "pipe:[1]"}}}
                     .dump());
  }
  std::string refusal(const std::string& id) {
    return failure_of([&] { runc.describe("h1", id); });
  }
};

TEST_F(RuncTest, FindsWhatRuncKnows) {
  add("a");
  ASSERT_TRUE(runc.find("a"));
  EXPECT_EQ(runc.find("a")->pid, ::getpid());
  EXPECT_EQ(runc.find("a")->state, "running");
  EXPECT_EQ(runc.container_of(::getpid())->name, "a");
  EXPECT_EQ(runc.all().size(), 1u);
  for (const char* id : {"b", "", ".", "../runc/a", "a/b"}) EXPECT_FALSE(runc.find(id)) << id;
}

TEST_F(RuncTest, ARecordOfOneThatWasIsNotBelieved) {
  add("a");
  std::filesystem::create_directories(folder.path("records/a"));
  folder.write("records/a/config.json",
               R"({"name": "a", "state": "running", "pid": 1, "instance": "runc:a:1"})");
  EXPECT_EQ(runc.find("a")->instance, "");
  folder.write("records/a/config.json",
               R"({"name": "a", "state": "restoring", "pid": 0, "instance": "runc:a:1"})");
  EXPECT_EQ(runc.find("a")->state, "restoring");
}

TEST_F(RuncTest, WhatIsNotReadyToMoveIsRefused) {
  EXPECT_EQ(refusal("a"), "there is no container 'a' of runc's on h1; see: runc list");
  add("a");
  folder.write("runc/a/exec.fifo", "");
  EXPECT_EQ(refusal("a"), "'a' cannot move: it was not started yet");
  std::filesystem::remove(folder.path("runc/a/exec.fifo"));
  folder.write("freezer.state", "FROZEN\n");
  EXPECT_EQ(refusal("a"), "'a' cannot move: it is paused; let it run: runc resume a");
  folder.write("freezer.state", "THAWED\n");
  EXPECT_EQ(refusal("a"), "'a' cannot move: cannot read " + folder.path() + "/config.json");
  add("p", {"io.container.manager=libpod"});
  EXPECT_EQ(refusal("p"), "'p' cannot move: it is podman's, which has to know of it");
}

TEST(Bundles, OfTheNetworkAPathIsNeeded) {
  const auto config = [](const json& spaces) { return json{{"linux", {{"namespaces", spaces}}}}; };
  EXPECT_EQ(network_namespace(config(json::array())), "");
  EXPECT_EQ(network_namespace(config({{{"type", "pid"}}, {{"type", "network"}, {"path", "/x"}}})),
            "/x");
  EXPECT_NE(failure_of([&] { network_namespace(config({{{"type", "network"}}})); }), "");
  EXPECT_EQ(failure_of([&] {
              check_config(config({{{"type", "ipc"}, {"path", "/x"}}}));
            }),
            "it shares the ipc namespace /x");
}

TEST(Bundles, ARootFilesystemIsCopiedToWhereNothingIs) {
  const Folder folder;
  const json config = {{"root", {{"path", "deep/rootfs"}}}};
  const auto refusal = [&](std::uint64_t bytes) {
    return failure_of([&] { check_bundle(folder.path("bundle"), config, bytes); });
  };
  EXPECT_EQ(refusal(1000), "");
  EXPECT_EQ(refusal(std::uint64_t{1} << 60).substr(0, 40),
            "not enough room for the root filesystem ");
  EXPECT_NE(refusal(~std::uint64_t{0}), "");
  const std::string root = folder.path("bundle/deep/rootfs");
  std::filesystem::create_directories(root);
  EXPECT_EQ(refusal(1000), "");
  const std::string taken =
      "there are files in " + root + " already; remove them, or move without --copy-rootfs";
  std::filesystem::create_directories(root + "/proc");
  EXPECT_EQ(refusal(1000), taken);
  std::filesystem::remove_all(root);
  std::filesystem::create_symlink("/nowhere", root);
  EXPECT_EQ(refusal(1000), taken);
}

TEST(Bundles, AllThatConfigNamesHasToBeThere) {
  const Folder folder;
  json config = {{"root", {{"path", "rootfs"}}},
                 {"mounts", {{{"type", "proc"}, {"source", "proc"}, {"destination", "/proc"}}}}};
  const auto refusal = [&] { return failure_of([&] { check_bundle(folder.path(), config, {}); }); };
  EXPECT_EQ(refusal(), "there is no root filesystem in " + folder.path("rootfs") +
                           "; have it copied: --copy-rootfs");
  std::filesystem::create_directories(folder.path("rootfs/bin"));
  EXPECT_EQ(refusal(), "");
  config["mounts"].push_back(
      {{"source", "data"}, {"destination", "/data"}, {"options", {"ro", "rbind"}}});
  EXPECT_EQ(refusal(), "there is no data, which is mounted at /data");
  std::filesystem::create_directories(folder.path("data"));  // beside config.json
  EXPECT_EQ(refusal(), "");
  config["hooks"] = {{"startContainer", {{{"path", "/inside"}}}},
                     {"createRuntime", {{{"path", folder.path("hook")}}}}};
  EXPECT_EQ(refusal(), "there is no " + folder.path("hook") + ", a createRuntime hook");
  folder.write("hook", "");
  EXPECT_EQ(refusal(), "");
  folder.write("config.json", R"({"linux": {"namespaces": [{"type": "network", "path": "/x"}]}})");
  EXPECT_EQ(refusal(), "the config.json in " + folder.path() + " names another network namespace");
  for (const json& odd : {json(), json(1), json{{"mounts", 1}, {"root", {}}, {"hooks", {1}}}}) {
    EXPECT_NE(failure_of([&] { check_bundle(folder.path("nothing"), odd, {}); }), "");
  }
}

}  // namespace
}  // namespace ferry::host
