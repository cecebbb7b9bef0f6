#include "host/units/podman/podman_kind.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <string>

#include "base/failure.h"
#include "played_process.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::eventually;
using test::failure_of;
using test::Folder;

constexpr char kPodmanId[] = "c5213a56e362b3ea0bd970bd0733909ba715a39a91665f550b68cb9dcfe9d46a";
constexpr milliseconds kKindLong{60000};

// What the source says of a container.
constexpr char kDetails[] = R"({"id": "c5213a56e362", "name": "web", "image": "3f748d67",
  "image_name": "localhost/web:latest", "sources": [], "networks": [], "volumes": ["data"],
  "network_mode": "bridge", "resident_bytes": 4096})";

struct PodmanKindTest : testing::Test {
  Folder folder;
  ThisHost host;
  std::optional<PodmanKind> kind;

  void SetUp() override {
    host.state_directory = folder.path();
    podman("inspected running");
  }
  void TearDown() override {
    host.stopping = true;
    kind.reset();
  }

  // Makes a podman that writes down how it was called. `inspect`: its answer about a container, which
  // is `inspected STATUS [POD [REMOVES-ITSELF [NETWORK-MODE]]]` or `gone`; `rest`: what else it knows,
  // cases of its first two arguments.
  void podman(const std::string& inspect, const std::string& rest = "") {
    folder.write("config.json", R"({"mounts": []})");
    folder.script(
        "podman",
        "folder=" + folder.path() + "\necho \"$*\" >>$folder/calls\n" + R"(
inspected() {
  echo '[{"Id": "')" +
            kPodmanId +
            R"('", "Image": "3f748d67", "ImageName": "localhost/web:latest", "Name": "web",
    "Pod": "'"${2:-}"'", "State": {"Status": "'"$1"'", "Pid": 0}, "StaticDir": "'$folder'",
    "OCIConfigPath": "'$folder'/config.json", "Mounts": [], "NetworkSettings": {"Networks": {}},
    "HostConfig": {"NetworkMode": "'"${4:-bridge}"'", "AutoRemove": '"${3:-false}"'}}]'
}
gone() { echo 'Error: no such container' >&2; exit 125; }
case "$1 $2" in
"container inspect") )" +
            inspect + R"(;;
)" + rest + R"(
esac
)");
    kind.reset();
    kind.emplace(folder.path("podman"), host);
  }
  std::string calls() const { return folder.read("calls"); }
  bool has_note() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().filename().string().starts_with("podman-")) return true;
    }
    return false;
  }
  std::string refusal() {
    return failure_of([&] { kind->named("h1", "web"); });
  }
};

TEST_F(PodmanKindTest, AContainerIsFoundByItsNameAndMovesAsAUnit) {
  EXPECT_TRUE(kind->has("web"));
  EXPECT_FALSE(kind->has("4711"));  // a pid
  const auto unit = kind->named("h1", "web");
  EXPECT_EQ(unit->name(), "web");
  EXPECT_EQ(unit->kind(), "podman");
  EXPECT_TRUE(unit->is_checkpointed());
  EXPECT_TRUE(kind->has_made(unit->instance()));
  EXPECT_FALSE(kind->has_made("runc:web:1"));
  EXPECT_EQ(kind->known("web", unit->instance())->instance(), unit->instance());
  std::uint64_t bytes = 1;
  const auto described = PodmanUnit::parse(unit->details(), &bytes);
  EXPECT_EQ(described.id, kPodmanId);
  EXPECT_EQ(described.image_name, "localhost/web:latest");
  EXPECT_EQ(failure_of([&] { unit->want({.rootfs = true}); }),
            "'web' is no container of runc's, for which --copy-rootfs and --stdio are");
}

TEST_F(PodmanKindTest, WhatPodmanCannotCheckpointIsRefused) {
  podman("inspected paused");
  EXPECT_EQ(refusal(),
            "'web' was not moved: it is paused; let it run to move it: podman unpause web");
  podman("inspected exited");
  EXPECT_EQ(refusal(), "'web' was not moved: it does not run on h1: it is exited");
  podman("inspected running '' true");
  EXPECT_EQ(refusal().find("'web' was not moved: it was started with --rm"), 0u);
  podman("inspected running a-pod");
  EXPECT_EQ(refusal().find("'web' was not moved: it shares a network with other containers"), 0u);
  podman("inspected running '' false container:other");
  EXPECT_EQ(refusal().find("'web' was not moved: it shares a network with other containers"), 0u);
  podman("gone");
  EXPECT_EQ(refusal(), "podman has no container 'web' on h1");
  EXPECT_FALSE(kind->has("web"));
}

TEST_F(PodmanKindTest, MalformedDetailsAreRefused) {
  for (const std::string details :
       {"", "{}", "[]", R"({"id": 1})", R"({"id": "", "name": "web"})"}) {
    EXPECT_EQ(failure_of([&] { kind->check_arrival("h3", "web", details); }), "malformed request");
    EXPECT_EQ(failure_of([&] { kind->arrive("web", details, "h1"); }), "malformed request");
  }
  EXPECT_EQ(failure_of([&] { kind->arrive("another", kDetails, "h1"); }), "malformed request");
  EXPECT_FALSE(has_note());
}

TEST_F(PodmanKindTest, AContainerArrivesOnce) {
  const auto unit = kind->arrive("web", kDetails, "h1");
  EXPECT_EQ(failure_of([&] { kind->arrive("web", kDetails, "h1"); }),
            "'web' arrives there already");
  EXPECT_TRUE(has_note());
  unit->publish();  // it is committed
  EXPECT_FALSE(has_note());
}

TEST_F(PodmanKindTest, NothingIsLeftOfAnArrivalThatWasGivenUp) {
  podman("gone", R"("rm --ignore") ;; "volume rm") ;;)");
  kind->arrive("web", kDetails, "h1")->forget();
  EXPECT_FALSE(has_note());
  EXPECT_NE(calls().find("rm --ignore --volumes --force --time 0 -- c5213a56e362\n"),
            std::string::npos);
  EXPECT_NE(calls().find("volume rm -- data\n"), std::string::npos);
}

TEST_F(PodmanKindTest, TheNextFerrydRemovesWhatWasArriving) {
  podman("gone", R"("rm --ignore") ;; "volume rm") ;;)");
  const auto arriving = kind->arrive("web", kDetails, "h1");
  const auto committed =
      kind->arrive("db", R"({"id": "d", "name": "db", "image": "", "image_name": "", "sources": [],
                             "networks": [], "volumes": [], "network_mode": "", "resident_bytes": 0})",
                   "h1");
  kind.emplace(folder.path("podman"), host);
  kind->known("db", committed->instance());
  kind->clear_up_arrivals();
  EXPECT_TRUE(eventually([&] { return !has_note(); }));
  EXPECT_NE(calls().find("-- c5213a56e362\n"), std::string::npos);
  EXPECT_EQ(calls().find("-- d\n"), std::string::npos) << "it is committed, and stays";
}

// As podman writes it: before podman has ended.
TEST_F(PodmanKindTest, TheArchiveIsGivenAwayAsItIsWritten) {
  podman("inspected running", R"("container checkpoint")
    exec >"$8"
    echo one; until [ -e $folder/heard ]; do sleep 0.01; done; echo two ;;)");
  const auto unit = kind->named("h1", "web");
  unit->leave();
  CriuRunner criu({});
  CriuRunner::Dump dump;
  std::string archive;
  dump.send = [&](const std::string& name, std::span<const std::byte> piece) {
    EXPECT_EQ(name, "archive.tar");
    archive.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  int answer = 0;
  dump.written = [&] { return answer; };
  std::atomic<pid_t> pid{0};
  folder.write("heard", "");
  EXPECT_EQ(unit->dump(criu, dump, &pid), "");
  EXPECT_EQ(archive, "one\ntwo\n");
  EXPECT_EQ(pid, 0);
  answer = 1;
  EXPECT_EQ(unit->dump(criu, dump, &pid), "the move was given up");
  answer = EAGAIN;
  EXPECT_EQ(unit->dump(criu, dump, &pid), "this ferryd is ending");
  // A transfer that breaks does not hold podman up.
  dump.send = [](const std::string&, std::span<const std::byte>) { throw Failure("no way there"); };
  EXPECT_EQ(unit->dump(criu, dump, &pid), "no way there");
}

TEST_F(PodmanKindTest, ACheckpointThatFailsSaysWhy) {
  podman("inspected running",
         R"("container checkpoint") echo 'Error: no luck today' >&2; exit 125 ;;)");
  const auto unit = kind->named("h1", "web");
  unit->leave();
  CriuRunner criu({});
  std::atomic<pid_t> pid{0};
  EXPECT_EQ(unit->dump(criu, {}, &pid), "podman container checkpoint: no luck today");
}

TEST_F(PodmanKindTest, WhatHasLeftIsRemovedOnceOnly) {
  podman("inspected running", R"("rm --ignore") ;;)");
  const auto unit = kind->named("h1", "web");
  unit->leave();
  EXPECT_TRUE(has_note());
  unit->left();
  EXPECT_FALSE(has_note());
  EXPECT_NE(calls().find("rm --ignore --volumes -- "), std::string::npos);
  // It may have come back since.
  folder.write("calls", "");
  unit->left();
  EXPECT_EQ(calls(), "");
}

TEST_F(PodmanKindTest, WhatDoesNotLeaveIsRestoredUnlessItRuns) {
  const std::string rest = R"("container restore") [ ! -e $folder/hangs ] || exec sleep 1000 ;;)";
  podman("inspected running", rest);
  const auto unit = kind->named("h1", "web");
  unit->leave();
  bool killed = true;
  podman("inspected exited", rest);
  const auto stopped = kind->known("web", unit->instance());
  EXPECT_EQ(stopped->come_back(kKindLong, &killed), "");
  EXPECT_FALSE(killed);
  EXPECT_NE(calls().find("container restore --tcp-established --file-locks "), std::string::npos);
  EXPECT_FALSE(has_note());
  folder.write("hangs", "");
  EXPECT_EQ(stopped->come_back(milliseconds(100), &killed),
            "podman container restore web: it does not end");
  EXPECT_TRUE(killed);
  podman("gone");
  EXPECT_EQ(kind->known("web", unit->instance())->come_back(kKindLong, &killed),
            "podman has it no more");
  EXPECT_FALSE(killed);
}

// A ferryd that was killed before anything was stopped has no record of the move, and podman may
// have made the checkpoint all the same.
TEST_F(PodmanKindTest, TheNextFerrydRestoresWhatItsFormerHasNoRecordOf) {
  podman("inspected running", R"("container restore") ;;)");
  kind->named("h1", "web")->leave();
  podman("inspected exited", R"("container restore") ;;)");
  kind->clear_up_arrivals();
  EXPECT_TRUE(eventually([&] { return !has_note(); }));
  EXPECT_NE(calls().find("container restore"), std::string::npos);
}

TEST_F(PodmanKindTest, ThatRestoreHasTheLimitOfAnyOther) {
  const std::string rest = R"("container restore") exec sleep 1000 ;;)";
  podman("inspected running", rest);
  kind->named("h1", "web")->leave();
  podman("inspected exited", rest);
  host.limits.restore = milliseconds(100);
  const auto began = std::chrono::steady_clock::now();
  kind->clear_up_arrivals();
  EXPECT_TRUE(eventually([&] { return !has_note(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - began, Limits().restore / 2);
  EXPECT_NE(calls().find("container restore"), std::string::npos);
}

}  // namespace
}  // namespace ferry::host
