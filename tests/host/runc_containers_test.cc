#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "host/proc/cgroups.h"
#include "host/proc/mounts.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "host/units/bundle.h"
#include "host/units/runc/runc.h"
#include "own_mounts.h"
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

// As runc does it, for CRIU and for mount points in what is bound; it is killed before it writes its
// state, or after that. Its `delete` is runc's own.
constexpr char kKilledRunc[] = R"(
case "$*" in
*" restore "*)
  cd FOLDER
  mkdir -p runc/a/criu-root images/.criu.cgyard.1 || exit
  mount --rbind bundle/rootfs runc/a/criu-root || exit
  mount --bind data bundle/rootfs/data || exit
  mount --bind data images/.criu.cgyard.1 || exit
  mkdir CGROUPS
  STATE
  kill -9 $$ ;;
*" delete "*) rm -r FOLDER/runc/a ;;
esac
)";

struct KilledRuncTest : RuncTest {
  const std::string name = "ferry-test-" + std::to_string(::getpid());
  const std::vector<std::string> cgroups = cgroups_at("/" + name);
  const std::string bundle = folder.path("bundle");

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    for (const char* made : {"bundle/rootfs/data", "bundle/rootfs/kept", "data", "kept"}) {
      std::filesystem::create_directories(folder.path(made));
    }
    for (const char* made : {"data", "kept", "bundle/rootfs"}) {
      folder.write(std::string(made) + "/file", made);
    }
  }

  // `state`: how it writes that.
  Runc killed_runc(const std::string& state) {
    std::string text = kKilledRunc, all;
    for (const auto& cgroup : cgroups) all += cgroup + " ";
    const auto put = [&](const std::string& word, const std::string& value) {
      for (std::size_t at; (at = text.find(word)) != std::string::npos;) {
        text.replace(at, word.size(), value);
      }
    };
    put("FOLDER", folder.path());
    put("CGROUPS", all);
    put("STATE", state);
    return {folder.path("records"), folder.script("killed-runc", text), folder.path("runc")};
  }

  // An arrival whose runc is killed, and that is given up.
  void arrive_in_vain(Runc& killed, const json& more = json::object()) {
    json source = {
        {"name", "a"},
        {"bundle", bundle},
        {"piped", false},
        {"network", nullptr},
        {"config", {{"root", {{"path", "rootfs"}}}, {"linux", {{"cgroupsPath", "/" + name}}}}}};
    source.update(more);
    const Container container = killed.receive("a", source.dump());
    std::filesystem::create_directories(folder.path("images"));
    CriuRunner criu({"criu", "", "", "", ""});
    std::atomic<pid_t> pid = 0;
    EXPECT_EQ(
        killed.restore(criu, {folder.path("images"), 1, "", false, false, {}}, container, &pid),
        "runc restore ended with status 137");
    EXPECT_EQ(targets_below(folder.path("runc")), std::vector<std::string>());
    EXPECT_EQ(targets_below(folder.path("images")), std::vector<std::string>());
    killed.forget(container);
    EXPECT_FALSE(std::filesystem::exists(folder.path("runc/a")));
    EXPECT_FALSE(std::filesystem::exists(folder.path("records/a")));
    for (const auto& cgroup : cgroups) EXPECT_FALSE(std::filesystem::exists(cgroup)) << cgroup;
    EXPECT_EQ(folder.read("data/file"), "data");
    EXPECT_EQ(folder.read("kept/file"), "kept");
  }
};

TEST_F(KilledRuncTest, LeavesTheRootFilesystemAndNothingElse) {
  test::with_own_mounts([&] {
    // The user's, and on a host that shares its mounts.
    run({{"mount", "--bind", folder.path("kept"), folder.path("bundle/rootfs/kept")}, {}, {}});
    run({{"mount", "--make-rshared", "/"}, {}, {}});
    Runc killed = killed_runc("");
    arrive_in_vain(killed);
    EXPECT_EQ(folder.read("bundle/rootfs/file"), "bundle/rootfs");
    EXPECT_EQ(targets_below(folder.path()),
              std::vector<std::string>{folder.path("bundle/rootfs/kept")});
  });
}

TEST_F(KilledRuncTest, LeavesItAlsoWhenItHadWrittenItsState) {
  test::with_own_mounts([&] {
    Runc killed = killed_runc(R"(echo '{"init_process_pid": 0, "init_process_start": 1,
      "cgroup_paths": {}, "config": {"labels": []}, "external_descriptors": []}' >runc/a/state.json)");
    arrive_in_vain(killed);
    EXPECT_EQ(folder.read("bundle/rootfs/file"), "bundle/rootfs");
    EXPECT_EQ(targets_below(folder.path()), std::vector<std::string>());
  });
}

// What was copied goes, and not what is bound into it.
TEST_F(KilledRuncTest, LeavesNoFilesThatCameWithIt) {
  test::with_own_mounts([&] {
    std::filesystem::remove_all(bundle);
    Runc killed = killed_runc("");
    run({{"sed", "-i", "/^case/i mkdir -p " + bundle + "/rootfs/data", folder.path("killed-runc")},
         {},
         {}});
    arrive_in_vain(killed, {{"rootfs", {{"folder", bundle + "/rootfs"}, {"bytes", 1}}}});
    EXPECT_FALSE(std::filesystem::exists(bundle));
  });
}

TEST(Cgroups, AreRemovedWithAllThatIsInThem) {
  const auto cgroups = cgroups_at("/ferry-test-" + std::to_string(::getpid()) + "/inner");
  std::error_code error;
  for (const auto& cgroup : cgroups) {
    if (cgroup.find("/pids/") == std::string::npos && cgroups.size() > 1) continue;
    const std::string outer = std::filesystem::path(cgroup).parent_path();
    if (!std::filesystem::create_directories(cgroup, error)) GTEST_SKIP() << error.message();
    const pid_t pid = start({{"sleep", "600"}, {}, {}}, "/dev/null");
    std::ofstream(cgroup + "/cgroup.procs") << pid << std::flush;
    EXPECT_TRUE(has_processes(cgroup));
    EXPECT_FALSE(has_processes(outer));
    remove_cgroup(outer);
    EXPECT_FALSE(std::filesystem::exists(outer));
    EXPECT_EQ(wait_for(pid), 128 + SIGKILL);
  }
}

// Which begin at one's own if the path does.
TEST(Cgroups, AreFoundAsRuncFindsThem) {
  for (const auto& cgroup : cgroups_at("../../a/./b")) {
    EXPECT_TRUE(cgroup.ends_with("/a/b")) << cgroup;
    EXPECT_TRUE(has_processes(cgroup.substr(0, cgroup.size() - 4))) << cgroup;
  }
  EXPECT_FALSE(cgroups_at("/a").empty());
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
