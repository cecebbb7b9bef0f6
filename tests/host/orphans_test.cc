#include "host/units/container/orphans.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "host/units/lab/lab.h"
#include "played_process.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::eventually;
using test::Folder;

struct OrphansTest : testing::Test {
  Folder folder;
  LabRuntime containers{folder.path("containers"),
                        folder.script("hook", "echo $1 $2 >>" + folder.path("calls") + "\n")};
  std::atomic<bool> stopping{false};
  pid_t child = ::fork();

  void SetUp() override {
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
  }
  void TearDown() override { end(); }

  void end() {
    if (child > 0) {
      ::kill(child, SIGTERM);
      ::waitpid(child, nullptr, 0);
    }
    child = 0;
  }
  void add(const std::string& name, const nlohmann::json& more) {
    nlohmann::json record{{"name", name},
                          {"state", "running"},
                          {"instance", name + ".1"},
                          {"pid", child},
                          {"restored", true}};
    if (more.is_object()) record.update(more);
    std::filesystem::create_directories(folder.path("containers/" + name));
    folder.write("containers/" + name + "/config.json", record.dump());
  }
  std::string exit_of(const std::string& name) {
    return folder.read("containers/" + name + "/exit");
  }
};

TEST_F(OrphansTest, TellHowTheyEnd) {
  add("a", {});
  add("started-here", {{"restored", false}});
  add("left", {{"state", "moved"}});
  {
    Orphans orphans(containers.all(), stopping);
    EXPECT_EQ(containers.find("a")->state, "running");
    end();
    EXPECT_TRUE(eventually([&] { return !exit_of("a").empty(); }));
    stopping = true;
  }
  // 255: a kernel that does not tell.
  EXPECT_TRUE(exit_of("a") == "143\n" || exit_of("a") == "255\n") << exit_of("a");
  EXPECT_EQ(containers.find("a")->state, "exited");
  EXPECT_EQ(folder.read("calls"), "release a.1\n");
  EXPECT_EQ(containers.find("started-here")->state, "running");
  EXPECT_EQ(containers.find("left")->state, "moved");
}

TEST_F(OrphansTest, AnEndThatNobodySawIsToldToo) {
  add("gone", {{"pid", 0x3FFFFF}});
  // Another process has its pid now.
  add("other", {{"netns", folder.write("netns", "")}});
  Orphans orphans(containers.all(), stopping);
  EXPECT_TRUE(
      eventually([&] { return exit_of("gone") == "255\n" && exit_of("other") == "255\n"; }));
  stopping = true;
}

TEST_F(OrphansTest, WhatMovesOnHasNotEnded) {
  add("a", {});
  {
    Orphans orphans(containers.all(), stopping);
    containers.set_state(*containers.find("a"), "moved", 0);
    end();
    ::usleep(50000);
    stopping = true;
  }
  EXPECT_EQ(containers.find("a")->state, "moved");
  EXPECT_EQ(exit_of("a"), "");
}

}  // namespace
}  // namespace ferry::host
