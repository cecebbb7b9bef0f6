#include "host/checkpoint/find/programs_here.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "host/control/control_server.h"
#include "host/history/history.h"
#include "host/proc/environment.h"
#include "host/proc/process_tree.h"
#include "host/units/process/process_unit.h"
#include "host/units/units.h"
#include "started.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::Folder;
using test::Started;

// Programs that use no RDMA: none of them talks to ferryd.
struct ProgramsHere : testing::Test {
  Folder folder;
  History history{folder.path("history")};
  ProcessKind processes;
  Units units{"h1", {&processes}, history};
  ControlServer control{folder.path("sock")};
  const std::string job = "here-" + std::to_string(::getpid());

  std::vector<pid_t> found(const Question& question) {
    std::vector<pid_t> pids;
    for (const auto& program : programs_here(control, units, question)) {
      EXPECT_EQ(program.user, ::getuid());
      EXPECT_TRUE(program.connections.empty());
      pids.push_back(program.pid);
    }
    return pids;
  }
  Question of_job(std::optional<uid_t> user = {}) const { return {job, user, {}, {}}; }
};

TEST_F(ProgramsHere, AreThoseThatFerryRunHasStartedForTheJob) {
  const Started launcher({"FERRY_JOB=" + job});
  const Started other({"FERRY_JOB=" + job + "x"});
  const Started of_none({});
  EXPECT_EQ(found(of_job()), std::vector{launcher.pid()});
  EXPECT_EQ(found(of_job(::getuid())), std::vector{launcher.pid()});
  EXPECT_EQ(found(of_job(::getuid() + 1)), std::vector<pid_t>());
  const auto programs = programs_here(control, units, of_job());
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_EQ(programs[0].name, "sleep");
  EXPECT_EQ(programs[0].job, job);
}

// Its shell is no program of the job, and the command that takes the checkpoint runs in it.
TEST_F(ProgramsHere, AreNotTheShellOfABatchSystem) {
  const Started shell({"SLURM_JOB_ID=" + job});
  const Question question{"slurm-" + job, {}, {}, {}};
  ASSERT_EQ(job_of(shell.pid()), question.job);
  EXPECT_EQ(found(question), std::vector<pid_t>());
}

// What it has started has its environment too.
TEST_F(ProgramsHere, AreWholeTrees) {
  const Started launcher({"FERRY_JOB=" + job}, {"/bin/sh", "-c", "sleep 60 & sleep 60 & wait"});
  ASSERT_TRUE(test::eventually([&] { return process_tree(launcher.pid()).size() == 3; }));
  EXPECT_EQ(found(of_job()), std::vector{launcher.pid()});
}

// A script of the job may ask for the checkpoint: it would wait for its own end.
TEST_F(ProgramsHere, AreNotWhatCallsTheFerryCommand) {
  std::filesystem::copy_file("/bin/sleep", folder.path("ferry"));
  const Started script({"FERRY_JOB=" + job},
                       {"/bin/sh", "-c", folder.path("ferry") + " 60 & wait"});
  const Started launcher({"FERRY_JOB=" + job});
  ASSERT_TRUE(test::eventually([&] {
    const auto tree = process_tree(script.pid());
    return tree.size() == 2 && program_name(tree.back()) == "ferry";
  }));
  EXPECT_EQ(found(of_job()), std::vector{launcher.pid()});
}

// Programs of one name are many, and this one may be of nobody's job.
TEST_F(ProgramsHere, AreNotFoundByTheirProgramsName) {
  const Started program({});
  EXPECT_EQ(found({{}, {}, "sleep", {}}), std::vector<pid_t>());
}

TEST_F(ProgramsHere, AreFoundByPid) {
  const Started program({});
  EXPECT_EQ(found({{}, {}, std::to_string(program.pid()), {}}), std::vector{program.pid()});
  EXPECT_EQ(found({{}, {}, "no-program-of-this-name", {}}), std::vector<pid_t>());
}

}  // namespace
}  // namespace ferry::host
