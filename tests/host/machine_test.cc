#include "host/units/vm/machine.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "guest.pb.h"
#include "host/units/vm/guest_spans.h"
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
  void guest_unplugs() {
    std::lock_guard lock(qemu_->mutex());
    qemu_->devices.clear();
  }
  static Qmp::Clock::time_point soon() { return Qmp::Clock::now() + milliseconds(100); }

  const test::Folder folder_;
  std::unique_ptr<PlayedQemu> qemu_ = std::make_unique<PlayedQemu>(monitor_of(folder_.path()));
};

TEST_F(MachineTest, LosesItsNic) {
  guest_unplugs();
  machine().await_unplugged(soon());
  EXPECT_EQ(qemu_->calls(), Calls{"netdev_del net1"});
}

TEST_F(MachineTest, AGuestMayNotLetGo) {
  EXPECT_EQ(failure_of([&] { machine().await_unplugged(soon()); }),
            "its guest does not let go of the NIC nic1");
  EXPECT_EQ(qemu_->calls(), Calls{});
}

TEST_F(MachineTest, GetsItsNicOnce) {
  guest_unplugs();
  machine().plug();
  machine().plug();
  EXPECT_EQ(qemu_->calls(), (Calls{"netdev_del net1", "netdev_add tap,id=net1",
                                   "device_add e1000e,id=nic1,bus=p"}));
}

TEST_F(MachineTest, SaysWhyItsNicCannotBePlugged) {
  guest_unplugs();
  {
    std::lock_guard lock(qemu_->mutex());
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
  EXPECT_EQ(qemu_->calls(), (Calls{"migrate_cancel", "netdev_del net1", "netdev_add tap,id=net1",
                                   "device_add e1000e,id=nic1,bus=p"}));
  {
    std::lock_guard lock(qemu_->mutex());
    qemu_->migration = "completed";
    qemu_->state = "postmigrate";
    // What cannot be plugged does not keep it from running.
    qemu_->devices.clear();
    qemu_->complaint = "Error: no";
  }
  machine().take_back();
  const Calls calls = qemu_->calls();
  EXPECT_EQ(Calls(calls.end() - 2, calls.end()), (Calls{"cont", "announce-self"}));
  EXPECT_FALSE(machine().is_migrating());
}

TEST_F(MachineTest, AMonitorSaysWhatIsWrong) {
  Qmp qmp(monitor_of(folder_.path()), milliseconds(60000));
  EXPECT_EQ(failure_of([&] { qmp.execute("no-such-command"); }),
            "QEMU's no-such-command: The command is not known");
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

// What comes while the guest's ferryd opens its port again is lost.
TEST_F(GuestTalkTest, RepeatsARequestUntilItIsHeard) {
  Calls ids;
  answers([&ids](const std::string& request) -> std::vector<std::string> {
    ids.push_back(json_text(json_of(request).at("id")));
    if (ids.size() < 3) return {};
    return {to(request, R"("waiting": "not left yet")"), to(request, R"("host": "g1")")};
  });
  EXPECT_EQ(
      GuestTalk(folder_.path(), "m").leave({}, milliseconds(1), milliseconds(60000), {}).host(),
      "g1");
  guest_.reset();
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(Calls(ids.size(), ids[0]), ids);
}

TEST_F(GuestTalkTest, SaysWhatTheGuestHasWaitedFor) {
  answers([](const std::string& request) -> std::vector<std::string> {
    return {to(request, R"("waiting": "no rxe0 yet")")};
  });
  EXPECT_EQ(failure_of([&] { GuestTalk(folder_.path(), "m").come_back(milliseconds(4000), {}); }),
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

TEST(GuestSpans, AreByTheClockOfTheHost) {
  using std::chrono::microseconds;
  v1::GuestReply reply;
  reply.set_now_us(10'000);
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    auto* span = reply.add_spans();
    span->set_lane("ferryd");
    span->set_name("configures\neth1" + std::string(1000, 'x'));
    span->set_begin_us(begin);
    span->set_end_us(end);
  };
  add(7'000, 9'000);
  add(9'000, 7'000);
  add(7'000, 11'000);  // later than the answer
  const auto received = Timeline::Clock::now();
  const auto spans = guest_spans(reply, "m", received);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].lane, "in m: ferryd");
  EXPECT_EQ(spans[0].name, "configures");
  EXPECT_EQ(spans[0].begin, received - microseconds(3'000));
  EXPECT_EQ(spans[0].end, received - microseconds(1'000));
  for (int i = 0; i < 2 * kMostGuestSpans; ++i) add(1, 2);
  EXPECT_LE(guest_spans(reply, "m", received).size(), static_cast<std::size_t>(kMostGuestSpans));
  reply.set_now_us(~std::uint64_t{0});  // an hour and more after all of them
  EXPECT_TRUE(guest_spans(reply, "m", received).empty());
}

}  // namespace
}  // namespace ferry::host
