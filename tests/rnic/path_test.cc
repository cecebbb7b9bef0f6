#include "sim_pair.h"

// Another primary path in the SQD state (clause 11.2.5.2), between the two addresses of each RNIC.
namespace ferry::rnic {
namespace {

using namespace testing;

class PathTest : public ::testing::Test, public SimPair {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(a.open(both_families(1)));
    ASSERT_NO_FATAL_FAILURE(b.open(both_families(2)));
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
  }

  Context::Options both_families(unsigned host) {
    Context::Options both = options(host);
    port::Address ipv6;
    ipv6.bytes[0] = std::byte{0xFD};
    ipv6.bytes[15] = static_cast<std::byte>(host);
    both.netdev.addresses.push_back(ipv6);
    return both;
  }

  void connect_as(ibv_qp_type type) {
    for (auto [node, qp] : {std::pair{&a, &qp_a}, std::pair{&b, &qp_b}}) {
      device::QpInit init;
      init.type = type;
      init.pd = node->pd;
      init.send_cq = init.recv_cq = node->cq;
      init.cap = {64, 64, 4, 4, 64};
      ASSERT_EQ(node->context->create_qp(&init, qp), 0);
      to_init(*qp);
    }
    for (auto [qp, peer, node] : {std::tuple{qp_a, qp_b, &b}, std::tuple{qp_b, qp_a, &a}}) {
      const bool rc = type == IBV_QPT_RC;
      const int rtr =
          rc ? kRtrMask : kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      ASSERT_EQ(qp->modify(attributes(IBV_QPS_RTR, peer->qpn(), node->gid()), rtr), 0);
      ASSERT_EQ(qp->modify(attributes(IBV_QPS_RTS, peer->qpn(), {}),
                           rc ? kRtsMask : IBV_QP_STATE | IBV_QP_SQ_PSN),
                0);
    }
    run(std::chrono::milliseconds(20));  // they learn of each other's kind
  }

  void drain_queue(device::Qp* qp) {
    ASSERT_EQ(qp->modify(attributes(IBV_QPS_SQD, 0, {}), IBV_QP_STATE), 0);
  }
  void go_on(device::Qp* qp) {
    ASSERT_EQ(qp->modify(attributes(IBV_QPS_RTS, 0, {}), IBV_QP_STATE), 0);
  }
  static int set_path(device::Qp* qp, const Node& peer, unsigned dgid_index, unsigned sgid_index) {
    ibv_qp_attr change = attributes(IBV_QPS_SQD, 0, peer.gid(dgid_index));
    change.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(sgid_index);
    return qp->modify(change, IBV_QP_AV);
  }
  void write(std::uint64_t id, char value) {
    ours[0] = value;
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, id, ours.data(), 1, mr_a)
                  .remote(theirs.data(), mr_b->rkey())
                  .post(qp_a),
              0);
  }
  // Counts what passes, by family.
  void watch() {
    network.set_filter([this](const port::Endpoint&, const port::Endpoint& to, auto) {
      ++(to.address.is_ipv4() ? ipv4_packets : ipv6_packets);
      return true;
    });
  }

  std::vector<char> ours = std::vector<char>(64), theirs = std::vector<char>(64);
  device::Mr *mr_a = nullptr, *mr_b = nullptr;
  unsigned ipv4_packets = 0, ipv6_packets = 0;
};

TEST_F(PathTest, LeadsOverTheOtherAddressesWhenBothSidesHaveChangedIt) {
  connect_as(IBV_QPT_RC);
  watch();
  write(1, 'a');
  run();
  EXPECT_EQ(drain(a.cq).size(), 1u);
  EXPECT_EQ(ipv6_packets, 0u);

  drain_queue(qp_a);
  drain_queue(qp_b);
  run();
  ASSERT_EQ(set_path(qp_a, b, 1, 1), 0);
  go_on(qp_a);
  write(2, 'b');
  run(std::chrono::milliseconds(500));
  EXPECT_TRUE(drain(a.cq).empty());  // the peer is not there yet; nothing fails for it
  ASSERT_EQ(set_path(qp_b, a, 1, 1), 0);
  go_on(qp_b);
  run(std::chrono::milliseconds(500));
  ipv4_packets = 0;
  auto done = drain(a.cq);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[0], 'b');
  write(3, 'c');
  run();
  done = drain(a.cq);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[0], 'c');
  EXPECT_EQ(ipv4_packets, 0u);
  ibv_qp_attr got{};
  ASSERT_EQ(qp_a->query(&got), 0);
  EXPECT_EQ(got.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(std::memcmp(got.ah_attr.grh.dgid.raw, b.gid(1).raw, 16), 0);
}

TEST_F(PathTest, OfAnUnreliableConnection) {
  connect_as(IBV_QPT_UC);
  watch();
  for (device::Qp* qp : {qp_a, qp_b}) drain_queue(qp);
  ASSERT_EQ(set_path(qp_a, b, 1, 1), 0);
  ASSERT_EQ(set_path(qp_b, a, 1, 1), 0);
  for (device::Qp* qp : {qp_a, qp_b}) go_on(qp);
  run(std::chrono::milliseconds(500));
  ipv4_packets = 0;
  write(1, 'u');
  run();
  ASSERT_EQ(drain(a.cq).size(), 1u);
  EXPECT_EQ(theirs[0], 'u');
  EXPECT_EQ(ipv4_packets, 0u);
}

TEST_F(PathTest, SameGidChangesNothingOnTheWire) {
  connect_as(IBV_QPT_RC);
  drain_queue(qp_a);
  watch();
  ASSERT_EQ(set_path(qp_a, b, 0, 0), 0);
  run();
  EXPECT_EQ(ipv4_packets + ipv6_packets, 0u);
  go_on(qp_a);
  write(1, 's');
  run();
  EXPECT_EQ(drain(a.cq).size(), 1u);
}

TEST_F(PathTest, OfTwoFamiliesOrOutsideOfSqdIsRefused) {
  connect_as(IBV_QPT_RC);
  EXPECT_EQ(set_path(qp_a, b, 1, 1), EINVAL);  // RTS
  drain_queue(qp_a);
  EXPECT_EQ(set_path(qp_a, b, 1, 0), EINVAL);
  EXPECT_EQ(set_path(qp_a, b, 0, 1), EINVAL);
  EXPECT_EQ(set_path(qp_a, b, 1, 2), EINVAL);  // no such index
  // SQD → RTS takes no address vector.
  ibv_qp_attr change = attributes(IBV_QPS_RTS, 0, b.gid(1));
  change.ah_attr.grh.sgid_index = 1;
  EXPECT_EQ(qp_a->modify(change, IBV_QP_STATE | IBV_QP_AV), EINVAL);
  // The path is as it was.
  go_on(qp_a);
  write(1, 'x');
  run();
  ASSERT_EQ(drain(a.cq).size(), 1u);
  EXPECT_EQ(theirs[0], 'x');
}

TEST_F(PathTest, IsWhatTheStatusTells) {
  connect_as(IBV_QPT_RC);
  for (device::Qp* qp : {qp_a, qp_b}) drain_queue(qp);
  ASSERT_EQ(set_path(qp_a, b, 1, 1), 0);
  ASSERT_EQ(set_path(qp_b, a, 1, 1), 0);
  for (device::Qp* qp : {qp_a, qp_b}) go_on(qp);
  run(std::chrono::milliseconds(500));
  std::vector<device::QpStatus> status;
  a.context->status(&status);
  ASSERT_EQ(status.size(), 1u);
  EXPECT_FALSE(status[0].peer.address.is_ipv4());
  EXPECT_FALSE(status[0].local.address.is_ipv4());
  EXPECT_EQ(status[0].resume_pending, 0);
}

}  // namespace
}  // namespace ferry::rnic
