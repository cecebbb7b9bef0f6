#include "relay/relay.h"

#include "rig.h"

// What a program sees of the kernel's rdma_cm before any move.
namespace ferry::relay::testing {
namespace {

struct Relayed : Program {};

TEST_F(Relayed, CommandsGoToTheKernelWithItsNumbers) {
  const std::uint32_t id = create(0xAA);
  EXPECT_EQ(bind(id, 4711), 0);
  EXPECT_EQ(listen(id, 8), 0);
  EXPECT_EQ(kernel.take_trace(),
            (Trace{"CREATE_ID", "BIND 100 port 4711", "LISTEN 100 backlog 8"}));
  EXPECT_NE(id, 100u);
  EXPECT_EQ(listen(100, 8), ENOENT) << "the kernel's number is not the program's";
}

TEST_F(Relayed, EventsComeWithTheProgramsNumbers) {
  const std::uint32_t id = create(0xAA);
  EXPECT_FALSE(is_readable());
  kernel.raise(100, 0xAA, event::kAddressResolved);
  EXPECT_TRUE(is_readable());
  std::uint32_t its = 0;
  EXPECT_EQ(event(&its), "170: 0");
  EXPECT_EQ(its, id);
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(event(), "");
  EXPECT_EQ(destroy(id), 1u) << "so many events has the program got";
}

TEST_F(Relayed, ARequestBringsAnIdOfItsOwn) {
  const std::uint32_t listening = create(0xAA);
  EXPECT_EQ(bind(listening, 4711), 0);
  EXPECT_EQ(listen(listening, 8), 0);
  kernel.raise(101, 0xAA, event::kConnectRequest);
  std::uint32_t id = 0;
  EXPECT_EQ(event(&id), "170: 4");
  EXPECT_NE(id, listening);
  kernel.take_trace();
  EXPECT_EQ(accept(id, 0xBB), 0);
  EXPECT_EQ(kernel.take_trace(), Trace{"ACCEPT 101"});
  kernel.raise(101, 0xBB, event::kEstablished);
  std::uint32_t its = 0;
  EXPECT_EQ(event(&its), "187: 9");
  EXPECT_EQ(its, id);
  EXPECT_EQ(destroy(id), 1u);
  EXPECT_EQ(destroy(listening), 1u);
}

// The kernel frees the number before DESTROY_ID returns.
TEST_F(Relayed, AnIdMayGetTheNumberOfOneThatEndsAtTheSameTime) {
  const std::uint32_t first = create(0xAA);
  std::uint32_t second = 0;
  kernel.in_destroy = [&] {
    EXPECT_EQ(listen(first, 1), ENOENT) << "or the command would be one for the other ID";
    second = create(0xBB);
  };
  destroy(first);
  ASSERT_EQ(kernel.last_id, 100u);
  kernel.raise(100, 0xBB, event::kAddressResolved);
  std::uint32_t its = 0;
  EXPECT_EQ(event(&its), "187: 0");
  EXPECT_EQ(its, second);
}

// The kernel rejects a request when its ID is destroyed.
TEST_F(Relayed, RequestsThatTheProgramNeverSeesAreRejected) {
  const std::uint32_t listening = create(0xAA);
  EXPECT_EQ(bind(listening, 4711), 0);
  EXPECT_EQ(listen(listening, 8), 0);
  kernel.raise(101, 0xAA, event::kConnectRequest);
  news(device::CmNews::kDisconnected);  // of any connection: the relay keeps what the kernel has
  kernel.take_trace();
  destroy(listening);
  EXPECT_EQ(kernel.take_trace(), (Trace{"DESTROY_ID 100", "DESTROY_ID 101"}));
  EXPECT_EQ(event(), "");
  kernel.raise(102, 0xAA, event::kConnectRequest);
  EXPECT_EQ(event(), "");
  EXPECT_EQ(kernel.take_trace(), Trace{"DESTROY_ID 102"});
  EXPECT_TRUE(kernel.ids.empty());
}

TEST_F(Relayed, DevicesAndPathsAreThoseOfTheProgram) {
  const std::uint32_t id = create(0xAA);
  EXPECT_EQ(route(id).node_guid, 70u);
  EXPECT_EQ(route(id).ibdev_index, 3u);
  ib_uverbs_qp_attr attributes{};
  rdma_ucm_init_qp_attr body{};
  body.response = reinterpret_cast<std::uint64_t>(&attributes);
  body.id = id;
  body.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(write(RDMA_USER_CM_CMD_INIT_QP_ATTR, body, sizeof attributes), 0);
  EXPECT_EQ(attributes.ah_attr.grh.sgid_index, 10);
}

// A program may have thousands of connections.
TEST_F(Relayed, AnswersAreKeptInTheirSize) {
  create(0xAA);
  const Answers answers(*kernel.file, devices, kernel.last_id, 70);
  std::vector<std::byte> answer;
  rdma_ucm_query route{};
  ASSERT_EQ(
      answers.find(*Command::read(own_command(RDMA_USER_CM_CMD_QUERY_ROUTE, route, 4096)), &answer),
      0);
  EXPECT_EQ(answer.size(), sizeof(rdma_ucm_query_route_resp));
  rdma_ucm_init_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(
      answers.find(*Command::read(own_command(RDMA_USER_CM_CMD_INIT_QP_ATTR, attributes, 4096)),
                   &answer),
      0);
  EXPECT_EQ(answer.size(), sizeof(ib_uverbs_qp_attr));
}

// Where an event of datagrams has a path, that of a connection has other things.
TEST_F(Relayed, OnlyEventsOfDatagramsHaveAPath) {
  for (const std::uint8_t type : {IBV_QPT_UD, IBV_QPT_RC}) {
    create(0xAA, RDMA_PS_IB, type);
    rdma_ucm_event_resp event{};
    event.id = kernel.last_id;
    event.event = event::kEstablished;
    event.param.ud.ah_attr.is_global = 1;
    event.param.ud.ah_attr.grh.sgid_index = 1;
    kernel.raise(event);
    EXPECT_EQ(this->event(nullptr, &event), "0: 9");
    EXPECT_EQ(event.param.ud.ah_attr.grh.sgid_index, type == IBV_QPT_UD ? 10 : 1);
  }
}

struct WithTwoChannels : Program {
  int first = -1;

  void SetUp() override {
    Program::SetUp();
    first = channel;
  }
  // From then on the other channel is `channel`.
  void open_another() {
    channel = relay.open(O_CLOEXEC | O_NONBLOCK);
    kernel.take_trace();
  }
  int migrate(std::uint32_t id, rdma_ucm_migrate_resp* answer) {
    rdma_ucm_migrate_id body{};
    body.response = reinterpret_cast<std::uint64_t>(answer);
    body.id = id;
    body.fd = static_cast<std::uint32_t>(first);
    return write(RDMA_USER_CM_CMD_MIGRATE_ID, body, sizeof *answer);
  }
  // A listener, and a request that the relay has fetched and the program has not.
  std::uint32_t listen_and_keep_request() {
    const std::uint32_t listening = create(0xAA);
    EXPECT_EQ(bind(listening, 4711), 0);
    EXPECT_EQ(listen(listening, 8), 0);
    kernel.raise(101, 0xAA, event::kConnectRequest);
    news(device::CmNews::kDisconnected);
    return listening;
  }
};

TEST_F(WithTwoChannels, AnIdGoesToTheOther) {
  const std::uint32_t id = create(0xAA);
  kernel.raise(100, 0xAA, event::kAddressError);
  EXPECT_EQ(event(), "170: 1");
  open_another();
  rdma_ucm_migrate_resp answer{77};
  EXPECT_EQ(migrate(id, &answer), 0);
  EXPECT_EQ(kernel.take_trace(), Trace{"MIGRATE_ID 100"});
  EXPECT_EQ(answer.events_reported, 1u);
  EXPECT_EQ(listen(id, 1), 0);
  kernel.raise(100, 0xAA, event::kAddressResolved);
  EXPECT_EQ(event(), "170: 0");
  channel = first;
  EXPECT_EQ(listen(id, 1), ENOENT);
}

TEST_F(WithTwoChannels, ARequestGoesWithItsListener) {
  const std::uint32_t listening = listen_and_keep_request();
  open_another();
  rdma_ucm_migrate_resp answer{};
  EXPECT_EQ(migrate(listening, &answer), 0);
  EXPECT_EQ(kernel.take_trace(), (Trace{"MIGRATE_ID 100", "MIGRATE_ID 101"}));
  std::uint32_t id = 0;
  EXPECT_EQ(event(&id), "170: 4");
  EXPECT_EQ(accept(id, 0xBB), 0);
  channel = first;
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(event(), "");
}

TEST_F(WithTwoChannels, AnIdMayGoToWhereItIs) {
  const std::uint32_t listening = listen_and_keep_request();
  rdma_ucm_migrate_resp answer{77};
  EXPECT_EQ(migrate(listening, &answer), 0);
  EXPECT_EQ(answer.events_reported, 0u);
  EXPECT_EQ(event(), "170: 4");
  EXPECT_EQ(event(), "");
}

TEST_F(WithTwoChannels, NoIdGoesToOneThatCouldNotBeOpenedAfterAMove) {
  open_another();
  ASSERT_EQ(stop(), 0);
  relay.park();
  kernel.fails = EACCES;
  EXPECT_EQ(relay.resume(), EACCES);
  kernel.fails = 0;
  const int broken = std::exchange(channel, relay.open(O_CLOEXEC | O_NONBLOCK));
  const std::uint32_t id = create(0xAA);
  first = std::exchange(channel, broken);
  rdma_ucm_migrate_resp answer{};
  EXPECT_EQ(migrate(id, &answer), ENODEV);
}

TEST_F(Relayed, WhatTheProgramClosesTheKernelCloses) {
  create(0xAA);
  kernel.take_trace();
  EXPECT_TRUE(relay.close(channel));
  EXPECT_EQ(kernel.take_trace(), Trace{"closed"});
  EXPECT_FALSE(relay.has(channel));
  EXPECT_FALSE(relay.close(channel));
  EXPECT_EQ(relay.status().channels, 0u);
}

// As by dup2(): write() and close() are not the relay's then.
TEST_F(Relayed, AnotherFileUnderTheNumberIsNoChannel) {
  const int other = ::eventfd(0, EFD_CLOEXEC);
  ASSERT_EQ(::dup3(other, channel, O_CLOEXEC), channel);
  EXPECT_FALSE(relay.has(channel));
  kernel.take_trace();
  EXPECT_EQ(listen(1, 1), EBADF);
  EXPECT_EQ(kernel.take_trace(), Trace{"closed"});
  EXPECT_EQ(relay.status().channels, 0u);
  EXPECT_GE(::fcntl(channel, F_GETFD), 0) << "the file is the program's";
  ::close(other);
  ::close(channel);
}

// As by close_range().
TEST_F(Relayed, AChannelMayGetTheNumberOfOneThatIsClosedUnseen) {
  create(0xAA);
  ::close(channel);
  kernel.take_trace();
  ASSERT_EQ(relay.open(O_CLOEXEC | O_NONBLOCK), channel);
  EXPECT_EQ(kernel.take_trace(), Trace{"closed"});
  EXPECT_TRUE(relay.has(channel));
  EXPECT_EQ(relay.status().channels, 1u);
  kernel.raise(kernel.file->first, 0xAA, event::kAddressResolved);
  EXPECT_EQ(event(), "") << "its ID has ended";
}

TEST_F(Relayed, CommandsThatTheKernelHasNot) {
  EXPECT_EQ(write(RDMA_USER_CM_CMD_GET_OPTION, rdma_ucm_query{}), ENOSYS);
  EXPECT_EQ(write(99, rdma_ucm_query{}), EINVAL);
}

TEST_F(Relayed, WhatTheKernelRefusesTheProgramSees) {
  kernel.fails = EACCES;
  EXPECT_EQ(relay.open(0), -1);
  EXPECT_EQ(errno, EACCES);
}

}  // namespace
}  // namespace ferry::relay::testing
