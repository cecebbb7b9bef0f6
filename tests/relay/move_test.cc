#include "rig.h"

// What becomes of the IDs of a program that moves, and of one whose peer moves.
namespace ferry::relay::testing {
namespace {

using device::CmNews;

struct Moved : Program {};

TEST_F(Moved, AListenerListensAgain) {
  const std::uint32_t id = create(0xAA);
  const std::uint8_t yes = 1;
  rdma_ucm_set_option option{};
  option.optval = reinterpret_cast<std::uint64_t>(&yes);
  option.id = id;
  option.optname = RDMA_OPTION_ID_REUSEADDR;
  option.optlen = sizeof yes;
  EXPECT_EQ(write(RDMA_USER_CM_CMD_SET_OPTION, option), 0);
  EXPECT_EQ(bind(id, 0), 0);
  EXPECT_EQ(listen(id, 8), 0);
  kernel.take_trace();
  move();
  EXPECT_EQ(kernel.take_trace(), (Trace{"closed", "CREATE_ID", "SET_OPTION 200 1=1",
                                        "BIND 200 port 4711", "LISTEN 200 backlog 8"}))
      << "at the port that the kernel had chosen";
  kernel.raise(201, 0xAA, event::kConnectRequest);
  EXPECT_EQ(event(), "170: 4");
}

TEST_F(Moved, WhatMustBeBoundAgainIsTold) {
  const std::uint32_t id = create(0xAA);
  const int yes = 1;
  rdma_ucm_set_option option{};
  option.optval = reinterpret_cast<std::uint64_t>(&yes);
  option.id = id;
  option.optname = RDMA_OPTION_ID_REUSEADDR;
  option.optlen = sizeof yes;
  EXPECT_EQ(write(RDMA_USER_CM_CMD_SET_OPTION, option), 0);
  EXPECT_TRUE(relay.status().bound.empty());
  EXPECT_EQ(bind(id, 0), 0);
  const agent::RdmaCmBound bound{RDMA_PS_TCP, {port::Address::from_ipv4(0), 4711}, true, false};
  EXPECT_EQ(relay.status().bound, std::vector{bound}) << "at the port that the kernel has chosen";
}

TEST_F(Moved, OfAConnectionTheKernelKnowsNothingMore) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  move();
  EXPECT_EQ(devices.told, std::vector{CmNews::kDetached});
  EXPECT_EQ(kernel.take_trace(), Trace{"closed"});
  EXPECT_EQ(route(id).node_guid, 70u) << "as the kernel has answered before";
  EXPECT_EQ(route(id).src_addr.sin6_port, htons(4711));
  EXPECT_FALSE(is_readable());
}

TEST_F(Moved, TheProgramDisconnects) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  move();
  kernel.take_trace();
  devices.told.clear();
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
  EXPECT_EQ(event(), "170: 10");
  EXPECT_EQ(event(), "170: 15");
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(destroy(id), 3u);
  EXPECT_EQ(devices.told.size(), 1u) << "once is enough";
  EXPECT_TRUE(kernel.trace.empty());
}

TEST_F(Moved, DatagramsAreNotDisconnected) {
  const std::uint32_t id = create(0xAA, RDMA_PS_UDP, IBV_QPT_UD);
  EXPECT_EQ(connect(id), 0);
  kernel.raise(kernel.last_id, 0xAA, event::kEstablished);
  EXPECT_EQ(event(), "170: 9");
  move();
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(event(), "");
  EXPECT_TRUE(devices.told.empty());
}

TEST_F(Moved, ADestroyedIdDisconnects) {
  std::uint32_t kernels = 0;
  const std::uint32_t first = connected(0xAA, &kernels);
  connected(0xBB, &kernels);
  move();
  devices.told.clear();
  destroy(first);
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
  relay.close(channel);
  EXPECT_EQ(devices.told.size(), 2u) << "so does one of a channel that is closed";
}

TEST_F(Moved, TheListOfQpsIsTakenOnce) {
  std::uint32_t kernels = 0;
  connected(0xAA, &kernels);
  connected(0xBB, &kernels);
  devices.looks = 0;
  ASSERT_EQ(stop(), 0);
  EXPECT_EQ(devices.looks, 1);
  ASSERT_EQ(relay.resume(), 0);
}

TEST_F(Moved, AProgramThatEndsDisconnects) {
  std::uint32_t kernels = 0;
  connected(0xAA, &kernels);
  EXPECT_FALSE(relay.leave()) << "the kernel tells";
  move();
  devices.told.clear();
  EXPECT_TRUE(relay.leave());
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
}

TEST_F(Moved, ThePeerDisconnects) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  move();
  devices.told.clear();
  news(CmNews::kDisconnected);
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(event(), "170: 10");
  news(CmNews::kDisconnected);
  EXPECT_EQ(event(), "") << "once";
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(event(), "170: 15");
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(event(), "") << "once";
  EXPECT_TRUE(devices.told.empty()) << "the peer knows";
}

TEST_F(Moved, EventsThatWereNotFetchedComeFirst) {
  const std::uint32_t id = create(0xAA);
  kernel.raise(100, 0xAA, event::kAddressError);
  ASSERT_EQ(stop(), 0);
  EXPECT_TRUE(is_readable()) << "a thread that polls would look, and wait for the end of the stop";
  relay.park();
  ASSERT_EQ(relay.resume(), 0);
  kernel.raise(200, 0xAA, event::kAddressResolved);
  EXPECT_EQ(event(), "170: 1");
  EXPECT_EQ(event(), "170: 0");
  EXPECT_EQ(destroy(id), 2u);
}

TEST_F(Moved, WhatIsHalfMadeIsWaitedFor) {
  const std::uint32_t id = create(0xAA);
  EXPECT_EQ(connect(id), 0);
  EXPECT_EQ(relay.status().half_made, "an rdma_cm connection that is being made");
  EXPECT_EQ(relay.stop(steady_clock::now() + std::chrono::milliseconds(20)), ETIMEDOUT);
  EXPECT_EQ(kernel.opened, 1u) << "nothing was closed";
  int looks = 0;
  kernel.before_event = [&] {
    if (++looks == 3) kernel.raise(100, 0xAA, event::kRejected);
  };
  EXPECT_EQ(stop(), 0);
  EXPECT_GE(looks, 3);
  EXPECT_EQ(relay.resume(), 0);
  EXPECT_EQ(event(), "170: 8");
}

// It would listen at another port.
TEST_F(Moved, AListenerWhosePortTheKernelDoesNotTellStays) {
  const std::uint32_t id = create(0xAA);
  EXPECT_EQ(bind(id, 0), 0);
  EXPECT_EQ(listen(id, 8), 0);
  kernel.query_fails = EIO;
  EXPECT_EQ(stop(), EIO);
  kernel.query_fails = 0;
  EXPECT_EQ(disconnect(id), 0) << "the program goes on";
  EXPECT_EQ(stop(), 0);
  EXPECT_EQ(relay.resume(), 0);
}

// The kernel would disconnect it, and nobody could tell the peer why.
TEST_F(Moved, AConnectionWithoutItsQpStays) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  EXPECT_EQ(relay.status().obstacle, "");
  for (const std::uint32_t peer : {0u, 0x77u}) {
    devices.peer = peer;
    EXPECT_EQ(relay.status().obstacle,
              "an rdma_cm connection whose QP is not among those that Ferry knows");
    EXPECT_EQ(stop(), EOPNOTSUPP);
  }
  EXPECT_TRUE(devices.told.empty());
  destroy(id);
  EXPECT_EQ(stop(), 0);
  EXPECT_EQ(relay.resume(), 0);
}

// Since ferryd has looked at the status.
TEST_F(Moved, AGroupThatWasJustJoinedStays) {
  const std::uint32_t id = create(0xAA, RDMA_PS_UDP, IBV_QPT_UD);
  rdma_ucm_create_id_resp group{};
  rdma_ucm_join_mcast body{};
  body.response = reinterpret_cast<std::uint64_t>(&group);
  body.id = id;
  EXPECT_EQ(write(RDMA_USER_CM_CMD_JOIN_MCAST, body, sizeof group), 0);
  EXPECT_EQ(relay.status().obstacle, "a multicast group that it has joined by rdma_cm");
  EXPECT_EQ(stop(), EOPNOTSUPP);
}

TEST_F(Moved, AMoveThatIsGivenUpEarlyLeavesAllAsItWas) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  ASSERT_EQ(stop(), 0);
  ASSERT_EQ(relay.resume(), 0);
  EXPECT_TRUE(devices.told.empty());
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(kernel.take_trace(), Trace{"DISCONNECT " + std::to_string(kernels)});
}

TEST_F(Moved, AChildThatIsMadeInAStopGoesOn) {
  const std::uint32_t id = create(0xAA);
  ASSERT_EQ(stop(), 0);
  relay.take_news(CmNews::kDisconnected, 70, 0x55);
  relay.before_fork();
  relay.after_fork_in_child();
  EXPECT_EQ(bind(id, 4711), 0) << "or it would wait for ever";
  EXPECT_EQ(relay.status().obstacle, "rdma_cm channels that its parent has as well");
}

TEST_F(Moved, AnAddressThatIsNotThere) {
  const std::uint32_t id = create(0xAA);
  EXPECT_EQ(bind(id, 4711), 0);
  EXPECT_EQ(listen(id, 8), 0);
  ASSERT_EQ(stop(), 0);
  relay.park();
  kernel.bind_fails = EADDRNOTAVAIL;
  EXPECT_EQ(relay.resume(), EADDRNOTAVAIL);
  EXPECT_EQ(listen(id, 8), EINVAL);
  destroy(id);
}

// The program has said so to the kernel; but a peer that is suspended does not listen to the kernel.
TEST_F(Moved, ADisconnectionUnderWay) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  EXPECT_EQ(disconnect(id), 0);
  move();
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
  EXPECT_EQ(event(), "170: 10");
  EXPECT_EQ(event(), "170: 15");
}

// Its QP's number may be that of a QP of another connection by then.
TEST_F(Moved, ADisconnectionThatIsOver) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  EXPECT_EQ(disconnect(id), 0);
  for (const std::uint32_t last : {event::kDisconnected, event::kTimewaitExit}) {
    kernel.raise(kernels, 0xAA, last);
    EXPECT_EQ(event(), "170: " + std::to_string(last));
  }
  devices.peer = 0x77;
  move();
  EXPECT_TRUE(devices.told.empty());
  EXPECT_EQ(event(), "");
}

// The program has destroyed the QP and kept the ID, and has another QP of the same number.
TEST_F(Moved, ThePeerOfAnotherConnectionDisconnects) {
  std::uint32_t kernels = 0;
  connected(0xAA, &kernels);
  devices.peer = 0x77;
  news(CmNews::kDisconnected);
  EXPECT_EQ(event(), "");
}

TEST_F(Moved, AgainAndAgain) {
  std::uint32_t kernels = 0;
  const std::uint32_t first = connected(0xAA, &kernels);
  move();
  devices.told.clear();
  move();
  EXPECT_TRUE(devices.told.empty()) << "the peer knows";
  EXPECT_EQ(route(first).node_guid, 70u);
  const std::uint32_t second = connected(0xBB, &kernels);
  EXPECT_EQ(kernels, 300u);
  EXPECT_NE(first, second);
}

// --- The peer moves

struct WithMovingPeer : Program {
  std::uint32_t id = 0, kernels = 0;
  void SetUp() override {
    Program::SetUp();
    id = connected(0xAA, &kernels);
    news(CmNews::kPeerMoves);
    kernel.raise(kernels, 0xAA, event::kDisconnected);
    EXPECT_FALSE(is_readable()) << "the program would wait for another event";
    relay.tend();
    EXPECT_FALSE(is_readable());
    EXPECT_EQ(event(), "") << "the peer's kernel may say so because of the move";
  }
};

TEST_F(WithMovingPeer, ItHasMoved) {
  news(CmNews::kDetached);
  EXPECT_EQ(kernel.take_trace(), Trace{"DESTROY_ID " + std::to_string(kernels)});
  news(CmNews::kPeerStays);
  EXPECT_EQ(event(), "");
  EXPECT_EQ(route(id).node_guid, 70u);
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
}

// The agent takes them from the kernel.
TEST_F(WithMovingPeer, OtherEventsCome) {
  ASSERT_EQ(relay.awaited(), std::vector{kernel.file->descriptor()});
  const std::uint32_t other = create(0xBB);
  EXPECT_EQ(connect(other), 0);
  kernel.raise(kernel.last_id, 0xBB, event::kRejected);
  pollfd there{relay.awaited()[0], POLLIN, 0};
  EXPECT_EQ(::poll(&there, 1, 0), 1);
  relay.tend();
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(event(), "187: 8");
  EXPECT_FALSE(is_readable());
  news(CmNews::kPeerStays);
  EXPECT_TRUE(relay.awaited().empty());
  EXPECT_EQ(event(), "170: 10");
  kernel.raise(kernel.last_id, 0xBB, event::kTimewaitExit);
  EXPECT_TRUE(is_readable()) << "as before";
}

// The program has asked for the event before the news have come.
TEST_F(Moved, TheNewsComeBesideTheEvent) {
  std::uint32_t kernels = 0;
  connected(0xAA, &kernels);
  kernel.raise(kernels, 0xAA, event::kDisconnected);
  kernel.before_event = [&] { relay.take_news(CmNews::kPeerMoves, 70, 0x55); };
  EXPECT_EQ(event(), "");
  kernel.before_event = nullptr;
  news(CmNews::kPeerStays);
  EXPECT_EQ(event(), "170: 10");
}

// Its kernel does not answer any more.
TEST_F(Moved, ByAPeerThatThisProgramDisconnectsFrom) {
  std::uint32_t kernels = 0;
  const std::uint32_t id = connected(0xAA, &kernels);
  news(CmNews::kPeerMoves);
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
  EXPECT_EQ(event(), "");
  kernel.take_trace();
  news(CmNews::kDetached);
  EXPECT_EQ(kernel.take_trace(), Trace{"DESTROY_ID " + std::to_string(kernels)});
  EXPECT_EQ(event(), "170: 10");
  EXPECT_EQ(event(), "170: 15");
  news(CmNews::kDisconnected);
  EXPECT_EQ(event(), "");
}

// The peer has connected, and has moved before this program looked for its events.
TEST_F(Moved, ByAPeerWithoutThisProgramNoticing) {
  const std::uint32_t listening = create(0xAA);
  EXPECT_EQ(bind(listening, 4711), 0);
  EXPECT_EQ(listen(listening, 8), 0);
  kernel.raise(101, 0xAA, event::kConnectRequest);
  std::uint32_t id = 0;
  EXPECT_EQ(event(&id), "170: 4");
  EXPECT_EQ(accept(id, 0xBB), 0);
  kernel.raise(101, 0xBB, event::kEstablished);
  news(CmNews::kPeerMoves);
  kernel.raise(101, 0xBB, event::kDisconnected);
  kernel.take_trace();
  news(CmNews::kDetached);
  EXPECT_EQ(kernel.take_trace(), Trace{"DESTROY_ID 101"});
  news(CmNews::kPeerStays);
  EXPECT_EQ(event(), "187: 9");
  EXPECT_EQ(event(), "");
  news(CmNews::kDisconnected);
  EXPECT_EQ(event(), "187: 10");
}

TEST_F(WithMovingPeer, ItHasDisconnectedAndNotMoved) {
  news(CmNews::kPeerStays);
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(event(), "170: 10");
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_TRUE(devices.told.empty());
}

TEST_F(WithMovingPeer, ItHasDisconnectedAndMoved) {
  kernel.take_trace();
  news(CmNews::kDisconnected);
  EXPECT_EQ(event(), "170: 10");
  EXPECT_EQ(kernel.take_trace(), Trace{"DESTROY_ID " + std::to_string(kernels)})
      << "or the kernel would tell it again";
  news(CmNews::kPeerStays);
  EXPECT_EQ(event(), "");
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(event(), "170: 15");
}

TEST_F(WithMovingPeer, TheLastEventIsWithheldAsWell) {
  kernel.raise(kernels, 0xAA, event::kTimewaitExit);
  EXPECT_EQ(event(), "");
  news(CmNews::kPeerStays);
  EXPECT_EQ(event(), "170: 10");
  EXPECT_EQ(event(), "170: 15");
  EXPECT_EQ(event(), "");
}

// Of a disconnection that is over but for its last event.
TEST_F(Moved, TheLastEventComesInAnyCase) {
  std::uint32_t kernels = 0;
  connected(0xAA, &kernels);
  kernel.raise(kernels, 0xAA, event::kDisconnected);
  EXPECT_EQ(event(), "170: 10");
  move();
  EXPECT_EQ(event(), "170: 15");
  move();
  EXPECT_EQ(event(), "");
}

// The peer's kernel may have forgotten the connection.
TEST_F(WithMovingPeer, ThisProgramDisconnects) {
  kernel.take_trace();
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
  EXPECT_EQ(kernel.take_trace(), Trace{"DISCONNECT " + std::to_string(kernels)});
  EXPECT_EQ(event(), "170: 10") << "which the program waits for";
  news(CmNews::kDetached);
  news(CmNews::kPeerStays);
  kernel.raise(kernels, 0xAA, event::kTimewaitExit);
  EXPECT_EQ(event(), "170: 15");
  EXPECT_EQ(event(), "");
}

// The program destroys its QP first.
TEST_F(WithMovingPeer, ThisProgramDisconnectsWithoutAQp) {
  devices.peer = 0;
  EXPECT_EQ(disconnect(id), 0);
  EXPECT_EQ(devices.told, std::vector{CmNews::kDisconnected});
}

TEST_F(WithMovingPeer, OtherConnectionsAreNotAffected) {
  relay.take_news(CmNews::kDisconnected, 70, 0x56);
  relay.take_news(CmNews::kDisconnected, 71, 0x55);  // of another device
  relay.tend();
  EXPECT_EQ(event(), "");
}

}  // namespace
}  // namespace ferry::relay::testing
