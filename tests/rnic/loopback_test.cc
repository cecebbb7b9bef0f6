#include "loopback.h"

// Two RNICs of this process over UDP on the loopback interface, with their progress threads.
namespace ferry::rnic::testing {
namespace {

void exchange(Pair& pair) {
  constexpr std::uint32_t kSize = 300'000;
  std::vector<std::byte> ours = pattern(kSize, 1), theirs(kSize), back(kSize);
  device::Mr* mr_a = pair.a.reg(ours.data(), kSize);
  device::Mr* mr_back = pair.a.reg(back.data(), kSize);
  device::Mr* mr_b = pair.b.reg(theirs.data(), kSize);

  ASSERT_EQ(post_receive(pair.qp_b, 7, theirs.data(), kSize, mr_b), 0);
  ASSERT_EQ(
      Send(IBV_WR_SEND_WITH_IMM, 1, ours.data(), kSize, mr_a).immediate(htonl(77)).post(pair.qp_a),
      0);
  ibv_wc wc = wait_completion(pair.a.cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.opcode, IBV_WC_SEND);
  EXPECT_EQ(wc.qp_num, pair.qp_a->qpn());
  wc = wait_completion(pair.b.cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, kSize);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, htonl(77));
  EXPECT_EQ(ours, theirs);

  std::fill(theirs.begin(), theirs.end(), std::byte{0});
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 2, ours.data(), kSize, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(pair.qp_a),
            0);
  wc = wait_completion(pair.a.cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(ours, theirs);

  ASSERT_EQ(Send(IBV_WR_RDMA_READ, 3, back.data(), kSize, mr_back)
                .remote(theirs.data(), mr_b->rkey())
                .post(pair.qp_a),
            0);
  wc = wait_completion(pair.a.cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, kSize);
  EXPECT_EQ(back, ours);
}

std::uint64_t counter(Context& context, const std::string& name) {
  std::vector<device::Counter> all;
  context.counters(&all);
  for (const device::Counter& one : all) {
    if (one.name == name) return one.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

TEST(Loopback, CountersKeepWhatDestroyedQpsDid) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false)));
  constexpr std::uint32_t kSize = 40'960;  // ten packets of 4096 bytes
  std::vector<std::byte> ours = pattern(kSize, 1), theirs(kSize);
  device::Mr* mr_a = pair.a.reg(ours.data(), kSize);
  device::Mr* mr_b = pair.b.reg(theirs.data(), kSize);
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 2, ours.data(), kSize, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(pair.qp_a),
            0);
  EXPECT_EQ(wait_completion(pair.a.cq).status, IBV_WC_SUCCESS);
  EXPECT_GE(counter(*pair.a.context, "sent_pkts"), 10u);
  EXPECT_GE(counter(*pair.b.context, "rcvd_pkts"), 10u);
  EXPECT_EQ(counter(*pair.b.context, "port_rcv_data"), kSize / 4);
  ASSERT_EQ(pair.b.context->destroy(pair.qp_b), 0);
  EXPECT_EQ(counter(*pair.b.context, "port_rcv_data"), kSize / 4);
  EXPECT_EQ(counter(*pair.b.context, "rx_icrc_encapsulated"), 0u);
}

TEST(Loopback, EveryOperationOverIpv4) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false)));
  exchange(pair);
}

TEST(Loopback, EveryOperationOverIpv6) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(false, true)));
  exchange(pair);
}

TEST(Loopback, BothFamiliesOfOneRnic) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, true), 0));
  exchange(pair);
  ASSERT_NO_FATAL_FAILURE(pair.connect(&pair.qp_a, &pair.qp_b, 1));
  exchange(pair);
}

TEST(Loopback, LossIsRepaired) {
  Pair pair;
  Settings settings;
  settings.loss.sending = 0.02;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false), 0, settings));
  exchange(pair);
}

}  // namespace
}  // namespace ferry::rnic::testing
