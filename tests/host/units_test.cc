#include "host/units/units.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferryd_here.h"
#include "host/proc/process_tree.h"
#include "host/units/process/process_unit.h"
#include "played_process.h"
#include "started.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::Folder;
using test::Started;

// A kind whose units have all left.
class Boxes : public ProcessKind {
 public:
  int asked = 0;  // whether it has a unit of some name, with or without RDMA

  bool has(const std::string& name) override {
    ++asked;
    return ProcessKind::has(name);
  }
  std::string kind() const override { return "box"; }
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override {
    throw Failure("there is no box '" + name + "' on " + host);
  }
};

constexpr uid_t kOwner = 4321;
constexpr char kNone[] = "there is no program 'db' on h1; see: ferry ps, and podman ps";
constexpr char kLeft[] =
    "'db' has moved from h1 to h2; to move it on, on h2: ferry move db --to HOST";

struct UnitsTest : testing::Test {
  Folder folder;
  std::optional<History> history{std::in_place, folder.path("history")};
  Boxes boxes;
  ProcessKind processes;
  ControlServer control{folder.path("sock")};
  std::uint64_t moves = 0;

  void begin(Side side) {
    v1::PastMove move;
    move.set_move_id(++moves);
    move.set_direction(direction_of(side));
    move.set_kind("move");
    move.set_program("db");
    move.set_from(side == Side::kSource ? "h1" : "h2");
    move.set_to(side == Side::kSource ? "h2" : "h1");
    move.set_owner(kOwner);
    history->begin(move);
  }
  void end(Side side) {
    history->end(moves, side, [](v1::PastMove& move) { move.set_outcome(History::kMoved); });
  }
  std::string refusal(uid_t user = kOwner, const std::string& kind = {}) {
    const Units units("h1", {&boxes, &processes}, *history);
    return failure_of([&] { units.find(control, user, "db", kind); });
  }
};

TEST_F(UnitsTest, SayWhereAProgramWentThatHasLeft) {
  EXPECT_EQ(refusal(), kNone);
  EXPECT_EQ(refusal(kOwner, "box"), "there is no box 'db' on h1");
  begin(Side::kSource);
  EXPECT_EQ(refusal(), "'db' is being moved already; wait until that has ended");
  end(Side::kSource);
  EXPECT_EQ(refusal(), kLeft);
  EXPECT_EQ(refusal(kOwner, "box"), kLeft);
  // The next ferryd, whose journal has nothing of it, knows the same.
  history.emplace(folder.path("history"));
  EXPECT_EQ(refusal(), kLeft);
  // It comes back, and ends here.
  begin(Side::kDestination);
  EXPECT_EQ(refusal(), kLeft);
  end(Side::kDestination);
  EXPECT_EQ(refusal(), kNone);
}

TEST_F(UnitsTest, SaySoToWhomItBelongedOnly) {
  begin(Side::kSource);
  end(Side::kSource);
  EXPECT_EQ(refusal(0), kLeft);
  EXPECT_EQ(refusal(kOwner + 1), kNone);
  EXPECT_EQ(refusal(kOwner + 1, "box"), "there is no box 'db' on h1");
}

TEST_F(UnitsTest, FindProgramsThatUseNoRdma) {
  // A name that nobody else has.
  const std::string name = "f" + std::to_string(::getpid());
  std::filesystem::copy_file("/bin/sleep", folder.path(name));
  std::optional<Started> program(std::in_place, std::vector<std::string>(),
                                 std::vector<std::string>{folder.path(name), "60"});
  const Units units("h1", {&boxes, &processes}, *history);
  for (const auto& text : {name, std::to_string(program->pid())}) {
    const auto found = units.find(control, kOwner, text);
    EXPECT_EQ(found.unit->root(), program->pid());
    EXPECT_TRUE(found.processes.empty());
    EXPECT_EQ(units.in_words(*found.unit),
              "'" + name + "' (process " + std::to_string(program->pid()) + ")");
  }
  const Started other({}, {folder.path(name), "60"});
  EXPECT_EQ(failure_of([&] { units.find(control, kOwner, name); }),
            "'" + name + "' is ambiguous on h1; give one of: " +
                std::to_string(std::min(program->pid(), other.pid())) + ", " +
                std::to_string(std::max(program->pid(), other.pid())));
  program.reset();
  EXPECT_EQ(units.find(control, kOwner, name).unit->root(), other.pid());
}

// podman takes long to answer, and is asked for containers that use no RDMA.
TEST_F(UnitsTest, AskForContainersOnlyWhenNoProgramOfTheNameUsesRdma) {
  test::FerrydHere here("h1");
  const test::PlayedProcess program(here.folder.path("sock"), {.slot = 97});
  ASSERT_TRUE(test::eventually([&] { return here.control->processes().size() == 1; }));
  const std::string name = program_name(program.pid()).value_or("");
  const Units units("h1", {&boxes, &processes}, *history);
  for (const auto& text : {name, std::to_string(program.pid())}) {
    const auto found = units.find(*here.control, kOwner, text);
    EXPECT_EQ(found.unit->root(), program.pid());
    ASSERT_EQ(found.processes.size(), 1u);
    EXPECT_EQ(found.processes[0].pid, program.pid());
  }
  EXPECT_EQ(boxes.asked, 0);
  EXPECT_EQ(refusal(), kNone);
  EXPECT_EQ(boxes.asked, 1);
}

}  // namespace
}  // namespace ferry::host
