#include <fcntl.h>

#include <climits>
#include <filesystem>
#include <thread>

#include <climits>
#include "gsi/local.h"
#include "port/udp_port.h"

#include "rdmacm/rig.h"

// Binding, resolving, asking; UDP port 4791; a stop.
namespace ferry::rdmacm {
namespace {

using Addresses = TwoPrograms;

constexpr std::uint16_t kPort = 4100;

TEST_F(Addresses, APortIsOneProgramsAlone) {
  a.listener(kPort);
  EXPECT_EQ(b.bind(b.create(), kPort), EADDRINUSE);
  EXPECT_EQ(b.bind(b.create(), kPort, kLoopback), EADDRINUSE);  // any address is every address
  EXPECT_EQ(a.bind(a.create(), kPort), EADDRINUSE);
  EXPECT_EQ(b.bind(b.create(RDMA_PS_UDP), kPort), 0);  // another port space
  EXPECT_EQ(a.bind(a.create(), kPort + 1, kLoopback), 0);
  EXPECT_EQ(b.bind(b.create(), kPort + 1), EADDRINUSE);
}

TEST_F(Addresses, ADestroyedIdGivesItsPortBack) {
  const auto first = a.listener(kPort);
  EXPECT_EQ(a.destroy(first), 0);
  EXPECT_EQ(b.bind(b.create(), kPort), 0);
}

TEST_F(Addresses, ReusedAddressIsTakenByWhoListens) {
  const auto first = a.create(), second = b.create();
  for (Program* p : {&a, &b}) {
    const auto each = p == &a ? first : second;
    EXPECT_EQ(p->option(each, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    EXPECT_EQ(p->bind(each, kPort), 0);
  }
  EXPECT_EQ(a.listen(first), 0);
  EXPECT_EQ(b.listen(second), EADDRINUSE);
  EXPECT_EQ(a.option(first, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);  // too late
}

TEST_F(Addresses, PortZeroIsAnyFreeOne) {
  const auto bound = a.create();
  ASSERT_EQ(a.bind(bound, 0), 0);
  rdma_ucm_query_addr_resp answer{};
  const rdma_ucm_query c{Program::address_of(answer), bound, RDMA_USER_CM_QUERY_ADDR};
  ASSERT_EQ(a.command(RDMA_USER_CM_CMD_QUERY, c, sizeof answer), 0);
  const auto address = parse_address(&answer.src_addr, answer.src_size);
  ASSERT_TRUE(address);
  EXPECT_GE(address->port, 32768);
  EXPECT_EQ(answer.node_guid, 0u);  // any device
  EXPECT_EQ(b.bind(b.create(), address->port), EADDRINUSE);
}

TEST_F(Addresses, WhatCannotBeBound) {
  const auto bound = a.create();
  EXPECT_EQ(a.bind(bound, kPort, port::Address::from_ipv4(0x0A636363)), ENODEV);
  EXPECT_EQ(a.bind(bound, kPort), 0);
  EXPECT_EQ(a.bind(bound, kPort), EINVAL);  // bound already
  rdma_ucm_bind c{};
  c.id = a.create();
  c.addr_size = sizeof(sockaddr_in) - 1;
  set_ipv4(&c.addr, kLoopback, 1);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_BIND, c), EINVAL);
}

// As on a RoCE device: AF_IB is known, and leads nowhere.
TEST_F(Addresses, NativeInfiniBandAddresses) {
  rdma_ucm_bind c{};
  Address ib;
  ib.family = kAfIb;
  ib.ib_service_id = 0x0000000001060000;
  c.id = a.create(RDMA_PS_IB);
  c.addr_size = static_cast<std::uint16_t>(ib.size());
  ib.store(&c.addr);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_BIND, c), 0);
  ib.ip = kLoopback;
  ib.store(&c.addr);
  c.id = a.create(RDMA_PS_IB);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_BIND, c), ENODEV);
  rdma_ucm_resolve_addr r{};
  r.id = c.id;
  r.dst_size = c.addr_size;
  ib.store(&r.dst_addr);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, r), ENODEV);
}

TEST_F(Addresses, ResolvingNeedsTheRightState) {
  const auto resolved = a.create();
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{resolved, 0}), EINVAL);
  EXPECT_EQ(a.connect(resolved, parameters(1)), EINVAL);
  ASSERT_EQ(a.resolve(resolved, kPort), 0);
  EXPECT_EQ(a.resolve(resolved, kPort), EINVAL);
  EXPECT_EQ(a.connect(resolved, parameters(1)), EINVAL);
  a.expect(event::kAddressResolved);
}

// The next hop: address resolution of the kernel, which programs give some time.
TEST_F(Addresses, AnAddressIsResolvedWhenItsNextHopIsKnown) {
  id = a.create();
  a.devices.answers_left = 5;
  ASSERT_EQ(a.resolve(id, kPort, kLoopback, 3600'000), 0);
  EXPECT_EQ(a.resolve(id, kPort), EINVAL);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 0}), EINVAL);
  a.expect(event::kAddressResolved);
  EXPECT_EQ(a.devices.answers_left, 0u);
  EXPECT_GE(a.devices.asked, 1u);
}

TEST_F(Addresses, AnAddressThatNobodyHas) {
  id = a.create();
  a.devices.answers_left = UINT_MAX;
  ASSERT_EQ(a.resolve(id, kPort, kLoopback, 20), 0);
  a.expect(event::kAddressError, -ETIMEDOUT);
  // Programs try again.
  a.devices.answers_left = 0;
  ASSERT_EQ(a.resolve(id, kPort), 0);
  a.expect(event::kAddressResolved);
}

TEST_F(Addresses, WhatIsBeingResolvedMayBeDestroyedOrStopped) {
  id = a.create();
  const auto other = a.create();
  a.devices.answers_left = UINT_MAX;
  ASSERT_EQ(a.resolve(id, kPort, kLoopback, 3600'000), 0);
  ASSERT_EQ(a.resolve(other, kPort, kLoopback, 3600'000), 0);
  EXPECT_EQ(a.destroy(id), 0);
  a.service->stop();
  a.devices.answers_left = 0;
  a.service->resume();
  EXPECT_EQ(a.expect(event::kAddressResolved).id, other);
}

TEST_F(Addresses, QueriesOfARoute) {
  id = a.routed(kPort);
  rdma_ucm_query_route_resp route{};
  ASSERT_EQ(a.command(RDMA_USER_CM_CMD_QUERY_ROUTE,
                      rdma_ucm_query{Program::address_of(route), id, 0}, sizeof route),
            0);
  EXPECT_EQ(be64toh(route.node_guid), kGuid);
  EXPECT_EQ(route.num_paths, 1u);
  EXPECT_EQ(route.ib_route[0].mtu, unsigned{IBV_MTU_2048});
  EXPECT_EQ(std::memcmp(route.ib_route[0].dgid, kLoopback.bytes.data(), 16), 0);
  std::byte paths[sizeof(rdma_ucm_query_path_resp) + sizeof(ib_path_rec_data)];
  rdma_ucm_query c{Program::address_of(paths), id, RDMA_USER_CM_QUERY_PATH};
  ASSERT_EQ(a.command(RDMA_USER_CM_CMD_QUERY, c, sizeof paths), 0);
  EXPECT_EQ(paths[0], std::byte{1});
  // A program that has room for less gets less.
  struct {
    std::uint64_t guid;
    std::uint64_t guard;
  } small{0, 0x77};
  ASSERT_EQ(
      a.command(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{Program::address_of(small), id, 0}, 8),
      0);
  EXPECT_EQ(be64toh(small.guid), kGuid);
  EXPECT_EQ(small.guard, 0x77u);
}

TEST_F(Addresses, Options) {
  id = a.create();
  EXPECT_EQ(a.option(id, RDMA_OPTION_ID_TOS, 32, 1), 0);
  EXPECT_EQ(a.option(id, RDMA_OPTION_ID_TOS, 32, 4), EINVAL);
  EXPECT_EQ(a.option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 31, 1), 0);
  EXPECT_EQ(a.option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 32, 1), EINVAL);
  EXPECT_EQ(a.option(id, 99, 1), ENOSYS);
}

TEST_F(Addresses, CommandsThatMakeNoSense) {
  EXPECT_EQ(a.command(99, rdma_ucm_disconnect{1}), EINVAL);
  EXPECT_EQ(a.disconnect(12345), ENOENT);
  std::byte nothing[4]{};
  EXPECT_EQ(a.service->command(a.channel, nothing), EINVAL);
  const rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_DISCONNECT, 100, 0};
  EXPECT_EQ(a.service->command(a.channel, std::as_bytes(std::span(&header, 1))), EINVAL);
  EXPECT_EQ(a.service->command(b.channel, std::as_bytes(std::span(&header, 1))), EBADF);
}

// The second holds UDP port 4791 when the first has gone.
TEST_F(Addresses, TheRoleOfUdpPort4791IsTakenOver) {
  auto first = std::make_unique<Program>();
  first->listener(kPort);
  listener = b.listener(kPort + 1);
  id = a.routed(kPort + 1);
  ASSERT_EQ(a.connect(id, parameters(1)), 0);
  b.expect(event::kConnectRequest);  // passed on by whoever holds it
  first.reset();
  const auto next = a.routed(kPort + 1);
  ASSERT_EQ(a.connect(next, parameters(2)), 0);
  b.expect(event::kConnectRequest);
}

TEST_F(Addresses, AnRnicThatOpensGetsUdpPort4791) {
  b.listener(kPort);
  int error = 0;
  for (int i = 0; i < 1000 && port::UdpPort::bind(kLoopback, 0, &error); ++i) ::usleep(1000);
  ASSERT_EQ(error, EADDRINUSE);
  Service::Yield yield(b.service.get());
  EXPECT_TRUE(port::UdpPort::bind(kLoopback, 0, &error));
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

TEST_F(Addresses, AStopLeavesOnlyTheChannels) {
  establish();
  b.service->stop();
  const std::size_t stopped = open_descriptors();
  a.service->stop();
  const std::size_t both = open_descriptors();
  EXPECT_LT(both, stopped);
  const int first = a.service == nullptr ? -1 : a.channel;
  EXPECT_GE(fcntl(first, F_GETFD), 0);
  EXPECT_FALSE(gsi::exists(gsi::listener_name_any(cm::service_id(RDMA_PS_TCP, 4000))));
  a.service->resume();
  b.service->resume();
  EXPECT_TRUE(gsi::exists(gsi::listener_name_any(cm::service_id(RDMA_PS_TCP, 4000))));
  ASSERT_EQ(a.disconnect(id), 0);
  b.expect(event::kDisconnected);
  ASSERT_EQ(b.disconnect(child), 0);
  a.expect(event::kDisconnected);
}

TEST_F(Addresses, LeavingTellsThePeers) {
  establish();
  a.service->leave();
  b.expect(event::kDisconnected);
}

// Closing a channel wakes the thread, which has the lock for a while when the program ends next.
TEST_F(Addresses, LeavingWaitsForTheLock) {
  establish();
  a.service->before_fork();
  std::thread leaves([&] { a.service->leave(); });
  ::usleep(20000);  // most likely it waits by now
  a.service->after_fork_in_parent();
  leaves.join();
  b.expect(event::kDisconnected);
}

}  // namespace
}  // namespace ferry::rdmacm
