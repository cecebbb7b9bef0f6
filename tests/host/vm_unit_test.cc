#include "host/units/vm/vm_unit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/units/vm/source_migration.h"
#include "played_qemu.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::failure_of;
using Calls = std::vector<std::string>;

constexpr char kUnitMac[] = "52:54:00:77:01:01";

// A machine with a NIC that leaves this host, from a QEMU and with a guest that are played.
class VmUnitTest : public ::testing::Test {
 protected:
  VmUnitTest() : unit_(vms_, record()) {
    vms_.records.write(record());
    const std::string folder = vms_.records.folder_of("m");
    qemu_ = std::make_unique<test::PlayedQemu>(monitor_of(folder));
    guest_ = std::make_unique<test::Listener>(guest_port_of(folder), [this](LineChannel& channel) {
      const auto line = channel.read(LineChannel::Clock::now() + milliseconds(5));
      if (line && !line->empty()) channel.write(guest(json_of(*line)), soon());
    });
  }

  static LineChannel::Clock::time_point soon() {
    return LineChannel::Clock::now() + milliseconds(1000);
  }
  MachineRecord record() const {
    return {"m",
            {"qemu", "-netdev", "tap,id=net1", "-device",
             std::string("e1000e,id=nic1,bus=p,netdev=net1,mac=") + kUnitMac},
            {"nic1"},
            "/",
            ::getpid(),
            start_time(::getpid()),
            false};
  }

  std::string guest(const nlohmann::json& request) {
    const std::string what = request.contains("leave")    ? "leave"
                             : request.contains("return") ? "return"
                                                          : "look";
    std::lock_guard lock(qemu_->mutex());
    nlohmann::json reply{{"id", request.at("id")}};
    if (reply != last_reply_) asked_.push_back(what);  // a request may be repeated
    last_reply_ = reply;
    if (what == "leave" && refuses_) reply["failure"] = "process 3 has rxe0 open";
    if (what == "leave" && !refuses_) std::erase(qemu_->devices, "nic1");
    return json_text(reply) + "\n";
  }
  Calls asked() {
    std::lock_guard lock(qemu_->mutex());
    return asked_;
  }

  // What Move does. Gives what dump() gives.
  std::string leave() {
    unit_.need_movable();
    unit_.meet(MeetingPoint{"127.0.0.1", 4782, "h2"}.text());
    unit_.copy_ahead(
        {}, [](const auto&) {}, [] {});
    CriuRunner::Dump dump;
    dump.pause = [this] {
      happens("pause");
      unit_.stop_inside(milliseconds(1000), [] {});
    };
    dump.freeze = [this] { happens("freeze"); };
    dump.leave_network = [this] { happens("leave network"); };
    dump.written = [this] {
      happens("written");
      return answer_;
    };
    dump.need_wanted = [] {};
    dump.failed = [this] { steps_.emplace_back("failed"); };
    std::atomic<pid_t> none{0};
    CriuRunner criu({});
    return unit_.dump(criu, dump, &none);
  }
  void happens(const std::string& step) {
    steps_.push_back(step);
    if (step == fails_at_) throw Failure("no luck at " + step);
  }
  bool runs_as_before() {
    std::lock_guard lock(qemu_->mutex());
    return qemu_->state == "running" && asked_.back() == "return" &&
           std::count(qemu_->devices.begin(), qemu_->devices.end(), "nic1") == 1;
  }

  const test::Folder folder_;
  ThisHost host_{.name = "h1"};
  VmHost vms_{host_, MachineRecords(folder_.path()), ""};
  VmUnit unit_;
  std::unique_ptr<test::PlayedQemu> qemu_;
  std::unique_ptr<test::Listener> guest_;
  Calls asked_, steps_;
  nlohmann::json last_reply_;
  bool refuses_ = false;
  std::string fails_at_;
  int answer_ = 0;
};

TEST_F(VmUnitTest, AMachineLeaves) {
  EXPECT_EQ(leave(), "");
  EXPECT_EQ(steps_, (Calls{"pause", "freeze", "leave network", "written"}));
  EXPECT_EQ(asked(), (Calls{"look", "leave"}));
  EXPECT_EQ(qemu_->calls(), (Calls{"migrate", "netdev_del net1", "migrate-continue", "quit"}));
  EXPECT_TRUE(unit_.paused());
  unit_.left();
  EXPECT_FALSE(vms_.records.find("m"));
}

// Whatever fails before the commit, the machine goes on with its NIC, and the programs come back.
TEST_F(VmUnitTest, AMachineThatCannotLeaveGoesOn) {
  for (const char* step : {"pause", "freeze", "leave network", "written"}) {
    fails_at_ = step;
    EXPECT_EQ(leave(), std::string("no luck at ") + step);
    EXPECT_EQ(steps_.back(), "failed");
    EXPECT_TRUE(runs_as_before()) << step;
  }
}

TEST_F(VmUnitTest, AMachineWhoseMoveIsDecidedAgainstGoesOn) {
  answer_ = 1;
  EXPECT_EQ(leave(), "the machine was not let go");
  const Calls calls = qemu_->calls();
  EXPECT_EQ(Calls(calls.end() - 2, calls.end()), (Calls{"cont", "announce-self"}));
  EXPECT_TRUE(runs_as_before());
}

// The next ferryd hears how it was decided.
TEST_F(VmUnitTest, AMachineWhoseMoveIsNotDecidedStandsStill) {
  answer_ = EAGAIN;
  EXPECT_NE(leave(), "");
  EXPECT_EQ(steps_.back(), "written");
  EXPECT_EQ(qemu_->calls().back(), "migrate-continue");
  EXPECT_EQ(asked(), (Calls{"look", "leave"}));
}

TEST_F(VmUnitTest, AGuestMayRefuse) {
  refuses_ = true;
  EXPECT_EQ(leave(), "in the machine 'm': process 3 has rxe0 open");
  EXPECT_TRUE(runs_as_before());
}

// As a ferryd does that finds the move of a former one in its journal.
TEST_F(VmUnitTest, AMachineIsTakenBackByTheNextFerryd) {
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->migration = "active";
    qemu_->devices.clear();
  }
  for (const char* command : {"hold", "release", "deactivate"}) unit_.switch_network(command);
  EXPECT_EQ(qemu_->calls(), Calls{});
  unit_.switch_network("activate");
  EXPECT_EQ(qemu_->calls().front(), "migrate_cancel");
  EXPECT_TRUE(runs_as_before());
}

// Of a ferryd that takes up the arrival of a machine that has run here since, and is moving on just now.
TEST_F(VmUnitTest, AMachineThatHasArrivedIsLeftAlone) {
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->state = "postmigrate";
    qemu_->migration = "completed";
    qemu_->devices.clear();
  }
  unit_.correct(Unit::State::kRestoring, Unit::State::kRunning, ::getpid(), {});
  EXPECT_EQ(qemu_->calls(), Calls{});
}

// Of one whose move was committed before the machine ran.
TEST_F(VmUnitTest, AMachineThatHasNotRunYetRuns) {
  MachineRecord arriving = record();
  arriving.is_arriving = true;
  vms_.records.write(arriving);
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->state = "paused";
    qemu_->devices.clear();
  }
  const VmUnit unit(vms_, arriving);
  unit.correct(Unit::State::kRestoring, Unit::State::kRunning, ::getpid(), {});
  EXPECT_EQ(qemu_->calls().back(), "cont");
  {
    std::lock_guard lock(qemu_->mutex());
    EXPECT_EQ(qemu_->devices, Calls{"nic1"});
  }
  EXPECT_FALSE(vms_.records.find("m")->is_arriving);
}

TEST_F(VmUnitTest, AMachineThatDoesNotRunDoesNotMove) {
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->state = "paused";
  }
  EXPECT_EQ(failure_of([&] { unit_.need_movable(); }),
            "the machine 'm' does not run (QEMU says: paused); let it run to move it");
}

TEST_F(VmUnitTest, OnlyRootMovesAMachine) {
  unit_.need_mover(0);
  EXPECT_EQ(failure_of([&] { unit_.need_mover(1000); }),
            "'m' is a virtual machine, which root may move");
}

}  // namespace
}  // namespace ferry::host
