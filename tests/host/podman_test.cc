#include "host/units/podman/podman.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/failure.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::Folder;

constexpr char kId[] = "c5213a56e362b3ea0bd970bd0733909ba715a39a91665f550b68cb9dcfe9d46a";
constexpr std::chrono::seconds kPodmanLong{60};

// The parts of podman 4.3.1's answer that are read; FOLDER is the test's.
constexpr char kInspected[] = R"([{
  "Id": "ID", "Image": "3f748d67", "ImageName": "localhost/web:latest", "Name": "web", "Pod": "",
  "State": {"Status": "STATUS", "Pid": 23151},
  "StaticDir": "FOLDER/containers/ID/userdata", "OCIConfigPath": "FOLDER/config.json",
  "Mounts": [{"Type": "volume", "Name": "data", "Source": "FOLDER/volumes/data/_data"},
             {"Type": "bind", "Source": "/srv/web"}],
  "NetworkSettings": {"Networks": {"fast": {}, "lan": {}}},
  "HostConfig": {"NetworkMode": "bridge", "AutoRemove": true}}])";
constexpr char kConfig[] = R"({"mounts": [
  {"type": "proc", "source": "proc"},
  {"type": "bind", "source": "FOLDER/run/ID/userdata/resolv.conf"},
  {"type": "bind", "source": "FOLDER/volumes/data/_data"},
  {"source": "/var/lib/ferry-cdi/1f/ferry", "options": ["bind", "ro"]},
  {"type": "bind", "source": "/srv/web"}]})";

struct PodmanTest : testing::Test {
  Folder folder;
  std::atomic<pid_t> pid{0};

  std::string filled(std::string text, const std::string& status = "running") const {
    for (const auto& [name, value] : {std::pair<std::string, std::string>{"FOLDER", folder.path()},
                                      {"ID", kId},
                                      {"STATUS", status}}) {
      for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
        text.replace(at, name.size(), value);
      }
    }
    return text;
  }
  // A podman that writes down how it was called.
  Podman podman(const std::string& script) const {
    return Podman(folder.script("podman", "echo \"$*\" >>" + folder.path("calls") + "\n" + script));
  }
  // What it says of a container.
  Podman that_has(const std::string& status) const {
    folder.write("config.json", filled(kConfig));
    folder.write("inspected", filled(kInspected, status));
    return podman("cat " + folder.path("inspected"));
  }
};

TEST_F(PodmanTest, AContainerIsAsPodmanSays) {
  const auto web = that_has("running").find("web");
  ASSERT_TRUE(web);
  EXPECT_EQ(folder.read("calls"), "container inspect --format json -- web\n");
  EXPECT_EQ(web->id, kId);
  EXPECT_EQ(web->name, "web");
  EXPECT_TRUE(web->runs());
  EXPECT_EQ(web->pid, 23151);
  EXPECT_EQ(web->image, "3f748d67");
  EXPECT_EQ(web->image_name, "localhost/web:latest");
  EXPECT_TRUE(web->removes_itself);
  EXPECT_EQ(web->network_mode, "bridge");
  EXPECT_EQ(web->networks, (std::vector<std::string>{"fast", "lan"}));
  EXPECT_EQ(web->volumes, std::vector<std::string>{"data"});
  // What a device brings along has to be there too; what podman makes, or sends, has not.
  EXPECT_EQ(web->sources, (std::vector<std::string>{"/var/lib/ferry-cdi/1f/ferry", "/srv/web"}));
}

TEST_F(PodmanTest, OneThatHasNeverRunHasNoConfiguration) {
  const Podman podman = that_has("created");
  std::filesystem::remove(folder.path("config.json"));
  const auto web = podman.find("web");
  ASSERT_TRUE(web);
  EXPECT_FALSE(web->runs());
  EXPECT_TRUE(web->sources.empty());
}

TEST_F(PodmanTest, WhatItDoesNotHaveIsNoFailure) {
  EXPECT_FALSE(
      podman("echo '[]'; echo 'Error: inspecting object: no such container web' >&2; exit 125")
          .find("web"));
  EXPECT_EQ(failure_of([&] {
              podman(
                  "echo 'Error: more than one result for container id c5: multiple found' >&2; "
                  "exit 125")
                  .find("c5");
            }),
            "podman does not say what 'c5' is: more than one result for container id c5: multiple "
            "found");
  EXPECT_NE(failure_of([&] { podman("echo nothing").find("web"); }), "");
}

TEST_F(PodmanTest, FailuresHaveTheReasonOfCriu) {
  folder.write("restore.log",
               "(00.000745) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n"
               "(00.001192) Error (ferry): 'web' cannot go on from this checkpoint\n");
  const Podman failing = podman(
      "echo 'Error: OCI runtime error: runc: criu failed: type RESTORE errno 0' >&2\n"
      "echo 'log file: " +
      folder.path("restore.log") + "' >&2; exit 125");
  EXPECT_EQ(failing.import("/x.tar", &pid),
            "podman container restore: 'web' cannot go on from this checkpoint");
  EXPECT_EQ(podman("echo 'Error: volume with name data already exists' >&2; exit 125")
                .import("/x.tar", &pid),
            "podman container restore: volume with name data already exists");
}

TEST_F(PodmanTest, ItIsCalledAsDocumented) {
  const Podman good = podman("exit 0");
  PodmanContainer web;
  web.id = kId;
  web.name = "web";
  EXPECT_EQ(good.checkpoint(web, "/a", &pid), "");
  EXPECT_EQ(good.import("/a", &pid), "");
  bool killed = true;
  EXPECT_EQ(good.restore(web, kPodmanLong, &killed), "");
  EXPECT_FALSE(killed);
  EXPECT_EQ(good.remove(kId, true), "");
  const std::string id = kId;
  EXPECT_EQ(folder.read("calls"),
            "container checkpoint --tcp-established --file-locks --compress none --export /a " +
                id +
                "\ncontainer restore --tcp-established --file-locks --import /a\n"
                "container restore --tcp-established --file-locks " +
                id + "\nrm --ignore --volumes --force --time 0 -- " + id + "\n");
}

TEST_F(PodmanTest, OneThatIsNotThereIsUnusable) {
  const Podman none(folder.path("none"));
  EXPECT_FALSE(none.is_installed());
  EXPECT_EQ(none.unusable(), "there is no " + folder.path("none") + "; install podman");
}

}  // namespace
}  // namespace ferry::host
