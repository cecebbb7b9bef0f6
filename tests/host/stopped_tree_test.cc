#include "host/standin/stopped_tree.h"

#include <gtest/gtest.h>

#include <optional>

#include "played_process.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::eventually;
using test::failure_of;
using test::Folder;
using test::PlayedProcess;

constexpr milliseconds kDeadline{60000};  // never waited for

struct StoppedTreeTest : testing::Test, ControlHandler {
  Folder folder;
  std::string path = folder.path("ferryd.sock");
  StandInHost stand_ins;
  std::unique_ptr<ControlServer> server = std::make_unique<ControlServer>(path);
  Residents residents{folder.path("residents")};
  std::unique_ptr<StoppedTree> tree = std::make_unique<StoppedTree>(*server, stand_ins, 77);

  void SetUp() override { server->start(*this); }
  void TearDown() override { server.reset(); }

  agent::Done pause_tree(pid_t) override { return {}; }
  agent::Done frozen(pid_t) override { return {}; }
  agent::Done dump_failed(pid_t) override { return {}; }
  agent::Done claim(pid_t, const std::string&) override { return {}; }
  agent::Done restore_failed(pid_t, const std::string&) override { return {}; }
  agent::Done restored(const agent::Restored&) override { return {}; }
  agent::Done action(const agent::Action&) override { return {}; }
  WakeUp awake(pid_t pid, const agent::Awake& awake) override {
    EXPECT_EQ(awake.move_id, 77u);
    return {tree->wake(pid), 2};
  }
  void resumed(pid_t pid, const agent::Resumed&) override { tree->resumed(pid); }
  void peers_know(pid_t, const agent::PeersKnow&) override {}
  void registered(pid_t) override {}
  void datagram_qps(pid_t, const std::vector<device::DatagramQps>&) override {}
  void letters(pid_t, agent::Letters) override {}
  void locate(pid_t, const agent::Locate&) override {}

  void await_processes(std::size_t count) {
    ASSERT_TRUE(eventually([&] { return server->processes().size() == count; }));
  }
};

TEST_F(StoppedTreeTest, AFrozenProcessComesBackWhenTheDumpFails) {
  PlayedProcess process(path, {.slot = 61});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  EXPECT_EQ(process.seen().stopped, 1);
  EXPECT_EQ(tree->timing().qps, 2u);
  EXPECT_EQ(tree->timing().unacked_psns, 3u);
  EXPECT_EQ(tree->timing().rdma_ns, 30u);
  EXPECT_TRUE(tree->has_process(process.pid()));
  const auto places = tree->sockets();
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].contexts.at(0).slots.at(0).local.udp_port, port::udp_port_of_slot(61));
  EXPECT_FALSE(tree->all_back());

  tree->mark_frozen();
  tree->mark_frozen();  // once is enough
  EXPECT_EQ(process.seen().control.freezes, 1u);
  // It runs (nobody has really frozen it) and asks before a decision: it has to stay.
  EXPECT_TRUE(eventually([&] { return process.seen().stays > 0; }));
  EXPECT_EQ(process.seen().command, agent::ControlBlock::kFrozen);
  EXPECT_EQ(process.seen().resumed, 0);
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return tree->all_back(); }));
  EXPECT_TRUE(process.seen().rollback);
  EXPECT_TRUE(process.seen().same_socket);
  await_processes(1);
}

// Its contexts could not be made on a device that is away, and it would not try again.
TEST_F(StoppedTreeTest, AProcessWhoseDeviceIsNotThereWaitsForIt) {
  PlayedProcess process(path, {.slot = 71, .leaves_none0 = true});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return process.seen().stays > 2; }));
  EXPECT_EQ(process.seen().resumed, 0);
  EXPECT_FALSE(tree->all_back());
}

TEST_F(StoppedTreeTest, AProcessThatWasNotFrozenIsToldToGoOn) {
  PlayedProcess process(path, {.slot = 62});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return tree->all_back(); }));
  EXPECT_EQ(process.seen().command, agent::ControlBlock::kGo);
  EXPECT_EQ(process.seen().control.freezes, 0u);
}

TEST_F(StoppedTreeTest, ATreeStopsAsAWholeOrNotAtAll) {
  PlayedProcess good(path, {.slot = 63}), bad(path, {.stop_error = EBUSY, .slot = 64});
  await_processes(2);
  EXPECT_NE(failure_of([&] {
              tree->stop(server->processes(), residents, kDeadline);
            }).find("cannot stop: Device or resource busy"),
            std::string::npos);
  EXPECT_TRUE(eventually([&] { return good.seen().resumed == 1; }));
  EXPECT_EQ(good.seen().stopped, 0);
  EXPECT_TRUE(tree->all_back());
  await_processes(2);
}

TEST_F(StoppedTreeTest, AMuteProcessHoldsNobodyBack) {
  PlayedProcess good(path, {.slot = 65}), mute(path, {.mute = true, .slot = 66});
  await_processes(2);
  EXPECT_NE(failure_of([&] {
              tree->stop(server->processes(), residents, milliseconds(300));
            }).find("does not answer"),
            std::string::npos);
  EXPECT_TRUE(eventually([&] { return good.seen().resumed == 1; }));
  // The mute one was hung up on: a late answer must find nobody.
  await_processes(1);
}

TEST_F(StoppedTreeTest, AProcessThatDoesNotLetGoKeepsItsSocketToItself) {
  {
    PlayedProcess process(path, {.clings = true, .slot = 69});
    await_processes(1);
    EXPECT_NE(failure_of([&] {
                tree->stop(server->processes(), residents, milliseconds(4000));
              }).find("does not let go"),
              std::string::npos);
    EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
    EXPECT_TRUE(tree->all_back());
  }
  // It has ended: nobody else holds the socket.
  int error = 0;
  EXPECT_NE(port::UdpPort::bind(PlayedProcess::address(), 69, &error), nullptr) << error;
}

// A standard peer sends to UDP port 4791 what is for this slot; whoever passed it on may be stopped.
TEST_F(StoppedTreeTest, TheRocePortIsHeldForOtherSlotsUntilTheProcessIsBack) {
  const auto is_free = [] {
    int error = 0;
    return port::UdpPort::bind(PlayedProcess::address(), 0, &error) != nullptr;
  };
  ASSERT_TRUE(eventually(is_free));
  std::optional<PlayedProcess> process(
      std::in_place, path, PlayedProcess::Behaviour{.slot = 80, .has_standard_peer = true});
  await_processes(1);
  std::vector<HeldProcess> held;
  tree->stop(server->processes(), residents, kDeadline,
             [&](const std::vector<HeldProcess>* stopped) { held = *stopped; });
  EXPECT_FALSE(is_free());
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return tree->all_back(); }));
  EXPECT_TRUE(process->seen().same_socket);
  EXPECT_TRUE(eventually(is_free));
  // A ferryd that takes the stop over from a former one.
  process.reset();
  StoppedTree taken_over(*server, stand_ins, 7);
  taken_over.recover(held, "/proc/self/ns/net");
  EXPECT_TRUE(eventually([&] { return taken_over.reopen().empty(); }));
  EXPECT_FALSE(is_free());
}

// The place of a socket is the kernel's word, and the name of its RNIC ferryd's.
TEST_F(StoppedTreeTest, AProcessThatGivesAwayWhatIsAnothersGoesOn) {
  const port::Endpoint elsewhere{port::Address::from_ipv4(0x0A4E0101), port::kRoceUdpPort};
  const auto here = [](std::uint32_t slot) {
    return port::Endpoint{PlayedProcess::address(), port::udp_port_of_slot(slot)};
  };
  struct Lie {
    PlayedProcess::Behaviour behaviour;
    std::string words;
  };
  const std::vector<Lie> lies{
      {{.slot = 171, .says_slot = 172}, "it is bound elsewhere"},
      {{.slot = 171, .origin = elsewhere, .epoch = ~0u}, "was not opened at 10.78.1.1:4791"},
      {{.slot = 171, .origin = here(172), .epoch = 1}, "was not opened at 127.78.0.1:"}};
  for (const auto& [behaviour, words] : lies) {
    PlayedProcess process(path, behaviour);
    await_processes(1);
    const std::string failure =
        failure_of([&] { tree->stop(server->processes(), residents, kDeadline); });
    EXPECT_NE(failure.find("that is not its own"), std::string::npos) << failure;
    EXPECT_NE(failure.find(words), std::string::npos) << failure;
    EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
    EXPECT_EQ(process.seen().stopped, 0);
    EXPECT_TRUE(tree->sockets().empty());
  }
  await_processes(0);
}

// It comes back at once, while others are still asked: its next connection is left alone.
TEST_F(StoppedTreeTest, AProcessThatIsRefusedIsDroppedOnce) {
  PlayedProcess liar(path, {.slot = 174, .says_slot = 175});
  PlayedProcess slow(path, {.slot = 176, .stop_ms = 300});
  await_processes(2);
  EXPECT_NE(failure_of([&] { tree->stop(server->processes(), residents, kDeadline); }), "");
  EXPECT_TRUE(eventually([&] { return liar.seen().resumed == 1 && slow.seen().resumed == 1; }));
  // Who is asked before it has come back does not answer.
  EXPECT_TRUE(eventually([&] { return server->statuses(kDeadline).size() == 2; }));
}

TEST_F(StoppedTreeTest, AProcessStopsUnderTheNameThatItWasGiven) {
  const port::Endpoint origin{port::Address::from_ipv4(0x0A4E0101), port::kRoceUdpPort};
  PlayedProcess process(path, {.slot = 173, .origin = origin, .epoch = 2});
  await_processes(1);
  const port::Endpoint here{PlayedProcess::address(), port::udp_port_of_slot(173)};
  residents.settle({process.pid(), 1, {{origin, here, "h2", "", 2, false}}});
  EXPECT_NE(failure_of([&] {
              tree->stop(server->processes(), residents, kDeadline);
            }).find("it was given away before"),
            std::string::npos);
  residents.settle({process.pid(), 1, {{origin, here, "h2", "", 1, false}}});
  EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  EXPECT_EQ(tree->sockets().at(0).contexts.at(0).slots.at(0).origin, origin);
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return tree->all_back(); }));
}

TEST_F(StoppedTreeTest, NewPlacesHaveASocketForEach) {
  PlayedProcess process(path, {.slot = 70});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  auto places = tree->sockets();
  EXPECT_TRUE(tree->fits(places));
  EXPECT_FALSE(tree->fits({}));
  places[0].contexts[0].slots.clear();
  EXPECT_FALSE(tree->fits(places));
  places[0].contexts.clear();
  EXPECT_FALSE(tree->fits(places));
  places = tree->sockets();
  places[0].inner_pid += 1;
  EXPECT_FALSE(tree->fits(places));
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return tree->all_back(); }));
}

TEST_F(StoppedTreeTest, AStandardPeerNeedsTheSamePlace) {
  PlayedProcess process(path, {.slot = 74, .has_standard_peer = true});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  auto places = tree->sockets();
  tree->need_same_places(places);
  places[0].contexts[0].slots[0].local.udp_port = port::udp_port_of_slot(75);
  EXPECT_EQ(failure_of([&] { tree->need_same_places(places); }),
            "peer 127.78.0.2 speaks no migration messages and the address 127.78.0.1:61514 cannot "
            "move along: the peer was connected after the check; try again");
  tree->roll_back();
  EXPECT_TRUE(eventually([&] { return tree->all_back(); }));
}

TEST_F(StoppedTreeTest, AfterTheCommitNobodyComesBack) {
  PlayedProcess process(path, {.slot = 67});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  tree->mark_frozen();
  auto places = tree->sockets();
  places[0].contexts[0].slots[0].local.address = port::Address::from_ipv4(0x0A000001);
  tree->commit(places, {});
  tree->roll_back();  // too late
  EXPECT_TRUE(eventually([&] { return process.seen().stays > 3; }));
  EXPECT_EQ(process.seen().resumed, 0);
}

TEST_F(StoppedTreeTest, AnAddressThatMovesAlongIsLeftAtOnce) {
  PlayedProcess process(path, {.slot = 68});
  await_processes(1);
  tree->stop(server->processes(), residents, kDeadline);
  tree->commit(tree->sockets(), {});
  EXPECT_TRUE(tree->expired());
  int error = 0;
  EXPECT_NE(port::UdpPort::bind(PlayedProcess::address(), 68, &error), nullptr) << error;
}

}  // namespace
}  // namespace ferry::host
