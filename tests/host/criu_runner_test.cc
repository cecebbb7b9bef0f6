#include "host/units/criu_runner.h"

#include <gtest/gtest.h>

#include "temporary.h"

namespace ferry::host {
namespace {

using test::Folder;

TEST(CriuRunner, ReadsVersions) {
  EXPECT_EQ(parse_criu_version("Version: 4.2.1\nGitID: v4.2.1\n"), 40201);
  EXPECT_EQ(parse_criu_version("Version: 4.2\n"), 40200);
  EXPECT_EQ(parse_criu_version("Version: 3.17.1\n"), 31701);
  EXPECT_EQ(parse_criu_version("something else"), 0);
}

TEST(CriuRunner, FindsTheCauseInALog) {
  Folder folder;
  const auto log = folder.write(
      "log",
      "(00.000100) Warn  (criu/kerndat.c:1): old\n"
      "(00.000200)     77: Error (criu/rlimit.c:2): rlimit: Can't setup RLIMIT_NOFILE for self\n"
      "(00.000300)     77: Error (criu/files-reg.c:3): File /tmp/x has bad size 1 (expect 2)\n"
      "(00.000400) Error (criu/cr-restore.c:4): Restoring FAILED.\n");
  EXPECT_EQ(error_of_log(log), "File /tmp/x has bad size 1 (expect 2)");
  EXPECT_EQ(error_of_log(folder.write("v2",
                                      "Error (criu/util.c:4): rlimit: RLIMIT_NOFILE\n"
                                      "     2: Error (criu/files-reg.c:3): Can't open file x\n"
                                      "Error (criu/cr-restore.c:4): Restoring FAILED.\n")),
            "Can't open file x");
  EXPECT_EQ(error_of_log(folder.write("plugin", "(00.1) Error (ferry): cannot stop it\n")),
            "cannot stop it");
  EXPECT_EQ(error_of_log(folder.write("command",
                                      "(00.1) Error (criu/util.c:6): exited, status=1\n"
                                      "(00.2) Error (criu/util.c:7): ip route restore failed\n"
                                      "(00.3) Error (criu/cr-restore.c:4): Restoring FAILED.\n")),
            "ip route restore failed (exited, status=1)");
  EXPECT_EQ(error_of_log(folder.write("alone", "Error (criu/util.c:6): exited, status=1\n")),
            "exited, status=1");
  EXPECT_EQ(error_of_log(folder.path("nothing")), "");
}

struct Unusable : testing::Test {
  Folder folder;
  std::string problem_of(const std::string& criu) {
    return CriuRunner(
               {criu, folder.path("plugins"), folder.path("action"), folder.path("library"), "/x"})
        .unusable();
  }
};

TEST_F(Unusable, SaysWhy) {
  EXPECT_NE(problem_of("/nonexistent/criu").find("CRIU is missing"), std::string::npos);
  EXPECT_NE(
      problem_of(folder.script("old", "echo Version: 3.17.1")).find("is CRIU 3.17, and 4.2 or"),
      std::string::npos);
  EXPECT_NE(problem_of(folder.script("no", "echo hello")).find("is no CRIU"), std::string::npos);
  const auto good = folder.script("good", "echo Version: 4.2.1");
  EXPECT_NE(problem_of(good).find("ferry_plugin.so is missing"), std::string::npos);
  std::filesystem::create_directory(folder.path("plugins"));
  folder.write("plugins/ferry_plugin.so", "");
  folder.write("action", "");
  EXPECT_NE(problem_of(good).find("library is missing"), std::string::npos);
  folder.write("library", "");
  EXPECT_EQ(problem_of(good), "");
  const auto sick = folder.script(
      "sick", "echo Version: 4.2.1; [ $1 != check ] || { echo 'no kcmp' >&2; exit 1; }");
  EXPECT_EQ(problem_of(sick), "CRIU does not work here (no kcmp); see: criu check");
}

TEST_F(Unusable, AFailedDumpSaysWhatTheLogSays) {
  const auto criu = folder.script("criu", R"(
while [ "$1" != --images-dir ]; do shift; done
echo "(00.000001) Error (criu/a.c:1): the cause" >"$2/dump.log"
env >"$2/env"
exit 1)");
  CriuRunner runner({criu, "", "", "/library.so", "/the/socket"});
  std::atomic<pid_t> pid{0};
  EXPECT_EQ(runner.dump({1, folder.path(), 77, ""}, &pid), "the cause");
  EXPECT_NE(folder.read("env").find("FERRY_MOVE_ID=77\n"), std::string::npos);
  EXPECT_NE(folder.read("env").find("FERRYD_SOCKET=/the/socket\n"), std::string::npos);
  EXPECT_NE(folder.read("env").find("LD_PRELOAD=/library.so\n"), std::string::npos);
  EXPECT_EQ(folder.read("env").find("FERRY_LEFT_OUT="), std::string::npos);
}

TEST_F(Unusable, ADumpHearsWhatIsLeftOut) {
  const auto criu = folder.script("criu", R"(
while [ "$1" != --images-dir ]; do shift; done
echo "$LD_PRELOAD $FERRY_LEFT_OUT" >"$2/env")");
  CriuRunner runner({criu, "", "", "/library.so", "/the/socket"});
  CriuRunner::Dump dump;
  dump.images = folder.path();
  dump.left_out = "/the/folder";
  std::atomic<pid_t> pid{0};
  EXPECT_EQ(runner.dump(dump, &pid), "");
  EXPECT_EQ(folder.read("env"), "/library.so /the/folder\n");
}

// A CRIU that fails with a line of its log so many times, and then restores.
std::string fails_first(Folder& folder, int times, const std::string& line) {
  return folder.script("criu", R"(
while [ "$1" != --images-dir ]; do shift; done
echo >>"$2/runs"
[ $(wc -l <"$2/runs") -gt )" + std::to_string(times) +
                                   R"( ] && exit 0
echo "(00.000001) Error (criu/pstree.c:1): )" +
                                   line + R"(" >"$2/restore.log"
exit 1)");
}

TEST_F(Unusable, ARestoreWhoseSessionIsTakenIsTriedAgain) {
  std::atomic<pid_t> pid{0};
  const std::string taken = "Current sid 458 intersects with pid (129) in images";
  CriuRunner runner({fails_first(folder, 3, taken), "", "", "/library.so", "/the/socket"});
  EXPECT_EQ(runner.restore({folder.path(), 77, "", false, {}}, &pid), "");
  EXPECT_EQ(folder.read("runs"), "\n\n\n\n");
}

TEST_F(Unusable, ARestoreWhoseSessionIsAlwaysTakenFails) {
  std::atomic<pid_t> pid{0};
  const std::string taken = "Current sid 458 intersects with pid (129) in images";
  CriuRunner runner({fails_first(folder, 9, taken), "", "", "/library.so", "/the/socket"});
  EXPECT_EQ(runner.restore({folder.path(), 77, "", false, {}}, &pid), taken);
}

TEST_F(Unusable, ARestoreThatFailsOtherwiseIsNotTriedAgain) {
  std::atomic<pid_t> pid{0};
  CriuRunner runner({fails_first(folder, 1, "the cause"), "", "", "/library.so", "/the/socket"});
  EXPECT_EQ(runner.restore({folder.path(), 77, "", false, {}}, &pid), "the cause");
  EXPECT_EQ(folder.read("runs"), "\n");
}

}  // namespace
}  // namespace ferry::host
