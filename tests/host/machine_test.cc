#include "host/units/vm/machine.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "guest.pb.h"
#include "host/units/vm/guest_talk.h"
#include "played_qemu.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::failure_of;
using test::PlayedQemu;
using Calls = std::vector<std::string>;

class MachineTest : public ::testing::Test {
 protected:
  Machine machine() const {
    return {folder_.path(),
            {{"nic1", "e1000e,id=nic1,bus=p", "tap,id=net1", "net1", "52:54:00:77:01:01"}}};
  }
  static Qmp::Clock::time_point soon() { return Qmp::Clock::now() + milliseconds(100); }

  const test::Folder folder_;
  std::unique_ptr<PlayedQemu> qemu_ = std::make_unique<PlayedQemu>(monitor_of(folder_.path()));
};

TEST_F(MachineTest, LosesItsNic) {
  machine().unplug(soon());
  EXPECT_EQ(qemu_->calls(), (Calls{"device_del nic1", "netdev_del net1"}));
  // It has none to lose any more.
  machine().unplug(soon());
  EXPECT_EQ(qemu_->calls().size(), 2u);
}

TEST_F(MachineTest, AGuestMayNotLetGo) {
  qemu_->lets_go = false;
  EXPECT_EQ(failure_of([&] { machine().unplug(soon()); }),
            "its guest does not let go of the NIC nic1");
  EXPECT_EQ(qemu_->calls(), Calls{"device_del nic1"});
}

TEST_F(MachineTest, GetsItsNicOnce) {
  machine().unplug(soon());
  machine().plug();
  machine().plug();
  EXPECT_EQ(qemu_->calls(), (Calls{"device_del nic1", "netdev_del net1", "netdev_add tap,id=net1",
                                   "device_add e1000e,id=nic1,bus=p"}));
}

TEST_F(MachineTest, SaysWhyItsNicCannotBePlugged) {
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->devices.clear();
    qemu_->complaint = "Error: Bus 'p' not found";
  }
  EXPECT_EQ(failure_of([&] { machine().plug(); }), "QEMU's device_add: Error: Bus 'p' not found");
}

// Whatever a move has come to that is given up.
TEST_F(MachineTest, IsTakenBack) {
  machine().take_back();
  EXPECT_EQ(qemu_->calls(), Calls{});  // it runs, with its NIC
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->migration = "active";
    qemu_->devices.clear();
  }
  machine().take_back();
  EXPECT_EQ(qemu_->calls(),
            (Calls{"migrate_cancel", "netdev_add tap,id=net1", "device_add e1000e,id=nic1,bus=p"}));
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->migration = "completed";
    qemu_->state = "postmigrate";
    // What cannot be plugged does not keep it from running.
    qemu_->devices.clear();
    qemu_->complaint = "Error: no";
  }
  machine().take_back();
  EXPECT_EQ(qemu_->calls().back(), "cont");
  EXPECT_FALSE(machine().is_migrating());
}

TEST_F(MachineTest, AMonitorSaysWhatIsWrong) {
  Qmp qmp(monitor_of(folder_.path()), milliseconds(1000));
  EXPECT_EQ(failure_of([&] { qmp.execute("no-such-command"); }),
            "QEMU's no-such-command: The command is not known");
  const auto until = Qmp::Clock::now() + milliseconds(20);
  EXPECT_FALSE(qmp.await([](const auto& event) { return event.at("event") == "STOP"; }, until));
  qemu_.reset();
  EXPECT_NE(failure_of([&] { qmp.execute("cont"); }).find("the other end"), std::string::npos);
  EXPECT_NE(
      failure_of([&] { Qmp(folder_.path("none"), milliseconds(20)); }).find("nobody answers at"),
      std::string::npos);
}

TEST_F(MachineTest, AMonitorThatAnotherProgramHasIsAFailure) {
  qemu_->is_silent = true;
  EXPECT_NE(failure_of([&] {
              Qmp(monitor_of(folder_.path()), milliseconds(20));
            }).find("does another program have its monitor open?"),
            std::string::npos);
}

// What the guest's ferryd answers to each request, after what is in the port already.
class GuestTalkTest : public MachineTest {
 protected:
  void answers(std::function<std::vector<std::string>(const std::string& request)> answer) {
    guest_ = std::make_unique<test::Listener>(
        guest_port_of(folder_.path()), [answer](LineChannel& channel) {
          const auto line = channel.read(LineChannel::Clock::now() + milliseconds(5));
          if (!line || line->empty()) return;
          for (const auto& text : answer(*line)) {
            channel.write(text + "\n", LineChannel::Clock::now() + milliseconds(1000));
          }
        });
  }
  // The answer `fields` to the request.
  static std::string to(const std::string& request, const std::string& fields) {
    return "{\"id\": " + json_text(json_of(request).at("id")) + ", " + fields + "}";
  }

  std::unique_ptr<test::Listener> guest_;
};

TEST_F(GuestTalkTest, HearsTheAnswerToItsQuestion) {
  answers([](const std::string& request) -> std::vector<std::string> {
    EXPECT_NE(request.find("\"nics\":[\"52:54:00:77:01:01\"]"), std::string::npos);
    return {"st of a line\"}", "{\"id\": \"12\", \"failure\": \"a former one\"}",
            to(request, R"("programs": [{"pid": 7, "name": "mpi"}])")};
  });
  const auto reply = GuestTalk(folder_.path(), "m").look({"52:54:00:77:01:01"}, milliseconds(5000));
  ASSERT_EQ(reply.programs_size(), 1);
  EXPECT_EQ(reply.programs(0).name(), "mpi");
}

TEST_F(GuestTalkTest, TellsWhyTheGuestRefuses) {
  answers([](const std::string& request) -> std::vector<std::string> {
    return {to(request, R"("failure": "process 3 has rxe0 open\nand more")")};
  });
  EXPECT_EQ(failure_of([&] {
              GuestTalk(folder_.path(), "m").leave({}, milliseconds(1), milliseconds(5000), {});
            }),
            "in the machine 'm': process 3 has rxe0 open");
}

TEST_F(GuestTalkTest, WaitsAsLongAsTheGuestDoes) {
  answers([](const std::string& request) -> std::vector<std::string> {
    return {to(request, R"("waiting": "no rxe0 yet")"), to(request, R"("host": "g1")")};
  });
  EXPECT_EQ(GuestTalk(folder_.path(), "m").come_back(milliseconds(5000), {}).host(), "g1");
}

TEST_F(GuestTalkTest, SaysWhatTheGuestHasWaitedFor) {
  answers([](const std::string& request) -> std::vector<std::string> {
    return {to(request, R"("waiting": "no rxe0 yet")")};
  });
  EXPECT_EQ(failure_of([&] { GuestTalk(folder_.path(), "m").come_back(milliseconds(300), {}); }),
            "in the machine 'm': no rxe0 yet");
}

TEST_F(GuestTalkTest, AGuestMayBeSilent) {
  answers([](const std::string&) { return std::vector<std::string>(); });
  EXPECT_EQ(failure_of([&] { GuestTalk(folder_.path(), "m").look({}, milliseconds(100)); }),
            "in the machine 'm' no ferryd answers at its serial port; start ferryd there");
  EXPECT_EQ(failure_of([&] {
              GuestTalk(folder_.path(), "m").come_back(milliseconds(60000), [] {
                throw Failure("given up");
              });
            }),
            "in the machine 'm': given up");
}

}  // namespace
}  // namespace ferry::host
