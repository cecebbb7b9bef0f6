#include "port/slot.h"

#include "rig.h"
#include "sim_host.h"
#include "wire/icrc.h"

// Several RNICs of one address beside a standard NIC, which sends all to UDP port 4791.
namespace ferry::rnic {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct SlotsTest : ::testing::Test {
  port::SimNetwork network{1};
  SimEnvironment environment{network, 2};
  std::shared_ptr<SimPortSource> ports = std::make_shared<SimPortSource>(network);
  FaultHandler faults;
  // Of our address: slot 0, slot 1, and one that is opened when it is needed. The NIC has another.
  Node first, second, third, nic;
  device::Qp* ours = nullptr;
  device::Qp* its = nullptr;
  std::vector<char> memory = std::vector<char>(4096), its_memory = std::vector<char>(4096);
  device::Mr *mr = nullptr, *its_mr = nullptr;
  std::uint64_t next_id = 1;

  Context::Options options(unsigned host, bool migration = true) {
    Context::Options options;
    options.environment = &environment;
    options.ports = ports;
    options.with_thread = false;
    options.settings.migration.enabled = migration;
    options.netdev.name = "sim0";
    options.netdev.mtu = 9000;
    options.netdev.guid = host;
    options.netdev.addresses = {address(host)};
    return options;
  }
  static port::Address address(unsigned host) {
    return port::Address::from_ipv4(0x0A000000 + host);
  }

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(first.open(options(1)));
    ASSERT_NO_FATAL_FAILURE(second.open(options(1)));
    ASSERT_NO_FATAL_FAILURE(nic.open(options(2, false)));
    mr = second.reg(memory.data(), memory.size());
    its_mr = nic.reg(its_memory.data(), its_memory.size());
  }

  void replace_nic(const Context::Options& options) {
    nic.context.reset();
    ASSERT_NO_FATAL_FAILURE(nic.open(options));
    its_mr = nic.reg(its_memory.data(), its_memory.size());
  }

  void connect() {
    ours = second.create_qp();
    its = nic.create_qp();
    ASSERT_EQ(port::slot_of(ours->qpn()), 1u);
    to_init(ours);
    to_init(its);
    to_rts(ours, its->qpn(), nic.gid());
    to_rts(its, ours->qpn(), second.gid());
  }

  void run(transport::Time duration = milliseconds(100)) {
    const transport::Time end = network.now() + duration;
    for (;;) {
      transport::Time next = std::min(end, network.next_event_time());
      for (Node* node : {&first, &second, &third, &nic}) {
        if (node->context && !node->context->engine().suspended()) {
          next = std::min(next, node->context->engine().deadlines().first());
        }
      }
      next = std::max(next, network.now());
      network.advance_to(next);
      for (Node* node : {&first, &second, &third, &nic}) {
        if (!node->context) continue;
        Engine::Lock lock(node->context->engine());
        node->context->engine().run(next);
      }
      if (next >= end) return;
    }
  }

  // One message each way arrives, in this time.
  bool talks(transport::Time within = milliseconds(100)) {
    bool good = true;
    for (const auto& [from, node, to, peer, from_mr, to_mr, source, target] :
         {std::tuple{its, &nic, ours, &second, its_mr, mr, &its_memory, &memory},
          std::tuple{ours, &second, its, &nic, mr, its_mr, &memory, &its_memory}}) {
      const std::uint64_t id = next_id++;
      good &= post_receive(to, id, target->data(), 1024, to_mr) == 0;
      (*source)[0] = static_cast<char>(id);
      (*target)[0] = 0;
      good &= Send(IBV_WR_SEND, id, source->data(), 1024, from_mr).post(from) == 0;
      run(within);
      ibv_wc sent{}, got{};
      good &= node->cq->poll(1, &sent) == 1 && sent.status == IBV_WC_SUCCESS && sent.wr_id == id;
      good &= peer->cq->poll(1, &got) == 1 && got.status == IBV_WC_SUCCESS && got.wr_id == id;
      good &= (*target)[0] == static_cast<char>(id);
    }
    return good;
  }

  static std::uint64_t drops(const Node& node) {
    return node.context->engine().reception().drops().unknown_qp;
  }
  bool holds(const Node& node) const {
    return !node.context->engine().held_ports().ports().empty();
  }
  bool is_free(unsigned host) {
    return network.attach({address(host), port::kRoceUdpPort}) != nullptr;
  }
};

TEST_F(SlotsTest, WhoHasSlot0PassesOnWhatIsForOthers) {
  connect();
  EXPECT_TRUE(talks());
  run(seconds(3));  // it is known for what it is
  EXPECT_TRUE(talks());
  EXPECT_EQ(drops(first), 0u);
  EXPECT_FALSE(holds(second));
}

// Packets of our own kind never take the way round.
TEST_F(SlotsTest, APeerOfOurKindGoesToTheSlotItself) {
  ASSERT_NO_FATAL_FAILURE(replace_nic(options(3)));
  unsigned to_slot_0 = 0;
  network.set_filter([&](const auto&, const port::Endpoint& to, auto) {
    to_slot_0 += to == port::Endpoint{address(1), port::kRoceUdpPort};
    return true;
  });
  connect();
  EXPECT_TRUE(talks());
  run(seconds(3));
  EXPECT_TRUE(talks());
  EXPECT_EQ(to_slot_0, 0u);
}

TEST_F(SlotsTest, WhenSlot0EndsAnotherSlotHoldsThePort) {
  connect();
  EXPECT_TRUE(talks());
  first.context.reset();
  run(milliseconds(300));  // without a thread it looks now and then
  EXPECT_TRUE(holds(second));
  EXPECT_TRUE(talks());
}

TEST_F(SlotsTest, WhoHoldsThePortPassesOnToOthers) {
  ASSERT_NO_FATAL_FAILURE(third.open(options(1)));
  device::Qp* another = third.create_qp();
  device::Qp* its_other = nic.create_qp();
  ASSERT_EQ(port::slot_of(another->qpn()), 2u);
  to_init(another);
  to_init(its_other);
  to_rts(another, its_other->qpn(), nic.gid());
  to_rts(its_other, another->qpn(), third.gid());
  connect();
  first.context.reset();
  run(seconds(1));
  EXPECT_NE(holds(second), holds(third));
  EXPECT_TRUE(talks());
  const auto target = std::vector<char>(64);
  device::Mr* third_mr = third.reg(const_cast<char*>(target.data()), target.size());
  ASSERT_EQ(post_receive(another, 7, const_cast<char*>(target.data()), 64, third_mr), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 8, its_memory.data(), 64, its_mr).post(its_other), 0);
  run();
  ibv_wc wc{};
  ASSERT_EQ(third.cq->poll(1, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

// A peer of our kind is known as such soon, and a QP that was destroyed has no peer.
TEST_F(SlotsTest, ThePortIsGivenUpWhenItIsNotNeeded) {
  first.context.reset();
  EXPECT_TRUE(is_free(1));
  connect();
  run(milliseconds(10));
  EXPECT_TRUE(holds(second));
  EXPECT_FALSE(is_free(1));
  ASSERT_EQ(second.context->destroy(ours), 0);
  run(seconds(2));
  EXPECT_FALSE(holds(second));
  EXPECT_TRUE(is_free(1));
}

TEST_F(SlotsTest, PeersOfOurKindNeedNoPort) {
  ASSERT_NO_FATAL_FAILURE(replace_nic(options(3)));
  first.context.reset();
  connect();
  run(seconds(2));
  EXPECT_FALSE(holds(second));
  EXPECT_TRUE(talks());
}

TEST_F(SlotsTest, AContextThatComesLaterGetsAnotherSlot) {
  connect();
  first.context.reset();
  run(milliseconds(300));
  ASSERT_TRUE(holds(second));
  ASSERT_NO_FATAL_FAILURE(third.open(options(1)));
  EXPECT_EQ(port::slot_of(third.create_qp()->qpn()), 2u);
}

TEST_F(SlotsTest, DatagramsReachEverySlot) {
  device::Qp* qps[2];
  for (int i = 0; i < 2; ++i) {
    Node& node = i == 0 ? second : nic;
    device::QpInit init;
    init.type = IBV_QPT_UD;
    init.pd = node.pd;
    init.send_cq = init.recv_cq = node.cq;
    init.cap = {16, 16, 2, 2, 32};
    ASSERT_EQ(node.context->create_qp(&init, &qps[i]), 0);
    ibv_qp_attr a = attributes(IBV_QPS_INIT, 0, {});
    a.qkey = 0x1234;
    ASSERT_EQ(qps[i]->modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    a.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(qps[i]->modify(a, IBV_QP_STATE), 0);
    a.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(qps[i]->modify(a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  const auto arrives = [&] {
    EXPECT_EQ(post_receive(qps[0], 1, memory.data(), 1024, mr), 0);
    device::Ah* ah = nullptr;
    ibv_ah_attr to = attributes(IBV_QPS_RTR, 0, second.gid()).ah_attr;
    EXPECT_EQ(nic.context->create_ah(nic.pd, to, &ah), 0);
    ibv_ah handle{};
    handle.handle = ah->handle();
    Send send(IBV_WR_SEND, 2, its_memory.data(), 100, its_mr);
    send.wr.wr.ud = {&handle, qps[0]->qpn(), 0x1234};
    EXPECT_EQ(send.post(qps[1]), 0);
    run();
    ibv_wc wc{};
    EXPECT_EQ(nic.cq->poll(1, &wc), 1);
    if (second.cq->poll(1, &wc) != 1) return false;
    EXPECT_EQ(wc.src_qp, qps[1]->qpn());
    return wc.status == IBV_WC_SUCCESS;
  };
  EXPECT_TRUE(arrives());
  first.context.reset();
  run(seconds(1));
  EXPECT_TRUE(arrives());
}

// A QPN of a standard NIC may look like one of another slot of ours: the NIC has no such port.
TEST_F(SlotsTest, ANicWithALargeQpnIsReachedAtTheRocePort) {
  nic.context.reset();
  ASSERT_NO_FATAL_FAILURE(third.open(options(2, false)));  // passes on to it: it has one port
  ASSERT_NO_FATAL_FAILURE(replace_nic(options(2, false)));
  std::map<int, unsigned> refused;
  network.set_filter([&](const port::Endpoint& from, const port::Endpoint& to, auto bytes) {
    if (to.address != address(2) || to.udp_port == port::kRoceUdpPort) return true;
    if (from.address == address(2)) return true;
    ++refused[std::to_integer<int>(bytes[0])];
    return false;
  });
  connect();
  EXPECT_EQ(port::slot_of(its->qpn()), 1u);
  EXPECT_TRUE(talks(seconds(2)));
  run(seconds(3));
  refused.clear();
  EXPECT_TRUE(talks());
  EXPECT_TRUE(refused.empty()) << refused.begin()->first;
}

// The holder is closed for the stop; at the new place, or after a roll-back, it is there again.
TEST_F(SlotsTest, AStopClosesThePortAndTheResumeOpensIt) {
  connect();
  first.context.reset();
  run(milliseconds(300));
  ASSERT_TRUE(holds(second));
  for (const bool rollback : {true, false}) {
    std::uint32_t unacked = 0;
    std::vector<rnic::Slot> slots;
    ASSERT_EQ(second.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    ASSERT_EQ(second.context->detach(&slots), 0);
    ASSERT_EQ(slots.size(), 1u);
    EXPECT_EQ(slots[0].slot, 1u);
    EXPECT_TRUE(is_free(1));
    ASSERT_EQ(second.context->attach(slots), 0);
    second.context->resume(rollback);
    EXPECT_TRUE(talks(milliseconds(500)));
    EXPECT_TRUE(holds(second));
  }
}

// Somebody who sends from elsewhere cannot make packets of others.
TEST_F(SlotsTest, EnvelopesOfStrangersAreDropped) {
  connect();
  run(seconds(3));
  std::vector<std::byte> envelope;
  network.set_trace([&](auto, const port::Endpoint&, const port::Endpoint& to, auto bytes,
                        port::SimVerdict verdict) {
    if (verdict == port::SimVerdict::kSent && bytes[0] == std::byte{0xC1} &&
        to == port::Endpoint{address(1), port::udp_port_of_slot(1)}) {
      envelope.assign(bytes.begin(), bytes.end());
    }
  });
  ASSERT_TRUE(talks());
  ASSERT_FALSE(envelope.empty());
  const auto before = drops(second);
  const port::Endpoint target{address(1), port::udp_port_of_slot(1)};
  unsigned sent = 0;
  for (const port::Endpoint& from :
       {port::Endpoint{address(3), port::kRoceUdpPort}, port::Endpoint{address(1), 40000}}) {
    const auto stranger = network.attach(from);
    ASSERT_NE(stranger, nullptr);
    std::uint16_t identification = 0;
    const auto out = stranger->reserve(target, envelope.size(), &identification);
    std::copy(envelope.begin(), envelope.end(), out.begin());
    wire::seal(out, from, target, identification);
    stranger->flush();
    ++sent;
    run(milliseconds(1));
  }
  EXPECT_EQ(drops(second), before + sent);
  EXPECT_TRUE(talks());
}

// For a QP that is not there.
TEST_F(SlotsTest, WhatIsPassedOnToNobodyIsDropped) {
  connect();
  device::Qp* const gone = std::exchange(ours, nullptr);
  device::Qp* const bereft = std::exchange(its, nullptr);
  connect();
  run(seconds(3));
  const auto before = drops(second);
  ASSERT_EQ(second.context->destroy(gone), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 1, its_memory.data(), 64, its_mr).post(bereft), 0);
  run(milliseconds(100));
  EXPECT_EQ(drops(second), before + 1);
  EXPECT_TRUE(talks());
}

}  // namespace
}  // namespace ferry::rnic
