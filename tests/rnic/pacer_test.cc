#include "rnic/engine/timing/pacer.h"

#include "sim_pair.h"

namespace ferry::rnic::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(Pacer, WithoutARateEverythingIsReady) {
  Pacer pacer;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pacer.ready(milliseconds(1)));
    pacer.charge(milliseconds(1), 4096);
  }
  EXPECT_EQ(pacer.waits_until(), transport::kNever);
}

TEST(Pacer, ABurstAndThenTheRate) {
  Pacer pacer;
  pacer.set(8000, 500);  // a byte in a microsecond
  transport::Time now = milliseconds(10);
  // Up to 500 bytes beyond what the rate allows, and the packet that goes past them.
  unsigned sent = 0;
  for (; pacer.ready(now); ++sent) pacer.charge(now, 100);
  EXPECT_EQ(sent, 6u);
  EXPECT_EQ(pacer.waits_until(), now + microseconds(100));
  now += microseconds(99);
  EXPECT_FALSE(pacer.ready(now));
  now += microseconds(1);
  EXPECT_TRUE(pacer.ready(now));
  pacer.charge(now, 100);
  EXPECT_FALSE(pacer.ready(now));
  // What was not used is not saved beyond the burst.
  now += milliseconds(100);
  for (sent = 0; pacer.ready(now); ++sent) pacer.charge(now, 100);
  EXPECT_EQ(sent, 6u);
  pacer.set(0, 0);
  EXPECT_TRUE(pacer.ready(now));
}

struct RateLimit : ::testing::Test, SimPair {
  std::vector<std::byte> ours = std::vector<std::byte>(200'000),
                         theirs = std::vector<std::byte>(200'000);
  device::Mr *mr_a = nullptr, *mr_b = nullptr;
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect());
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
  }
  // How long a WRITE of `bytes` takes.
  transport::Time write(std::uint32_t bytes) {
    const transport::Time start = network.now();
    EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), bytes, mr_a)
                  .remote(theirs.data(), mr_b->rkey())
                  .post(qp_a),
              0);
    while (network.now() < start + std::chrono::seconds(10)) {
      run(microseconds(100));
      const auto completions = drain(a.cq);
      if (completions.empty()) continue;
      EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
      return network.now() - start;
    }
    ADD_FAILURE() << "no completion";
    return {};
  }
};

TEST_F(RateLimit, HoldsTheRequestsOfAQp) {
  EXPECT_LT(write(100'000), milliseconds(50));
  ASSERT_EQ(qp_a->limit_rate({8000, 2000, 1024, 0}), 0);  // 100,000 bytes in 100 ms
  const transport::Time limited = write(100'000);
  EXPECT_GT(limited, milliseconds(97));
  EXPECT_LT(limited, milliseconds(115));  // headers count, too
  ibv_qp_attr attributes{};
  ASSERT_EQ(qp_a->query(&attributes), 0);
  EXPECT_EQ(attributes.rate_limit, 8000u);
  ASSERT_EQ(qp_a->limit_rate({0, 0, 0, 0}), 0);
  EXPECT_LT(write(100'000), milliseconds(50));
}

TEST_F(RateLimit, DoesNotHoldResponses) {
  ASSERT_EQ(qp_b->limit_rate({1, 1, 0, 0}), 0);  // a byte in 8 ms
  EXPECT_LT(write(100'000), milliseconds(50));
  ASSERT_EQ(Send(IBV_WR_RDMA_READ, 2, ours.data(), 100'000, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  run(milliseconds(50));
  EXPECT_EQ(drain(a.cq).size(), 1u);
}

TEST_F(RateLimit, LimitsAreThoseReported) {
  ibv_device_attr_ex device{};
  ASSERT_EQ(a.context->query_device(&device), 0);
  const ibv_packet_pacing_caps& caps = device.packet_pacing_caps;
  for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    EXPECT_NE(caps.supported_qpts & 1u << type, 0u) << type;
  }
  EXPECT_EQ(qp_a->limit_rate({caps.qp_rate_limit_min, 0, 0, 0}), 0);
  EXPECT_EQ(qp_a->limit_rate({caps.qp_rate_limit_max, 0, 0, 0}), 0);
  EXPECT_EQ(qp_a->limit_rate({caps.qp_rate_limit_max + 1, 0, 0, 0}), EINVAL);
  EXPECT_EQ(qp_a->limit_rate({0, 1, 0, 0}), EINVAL);  // a burst of no rate
  EXPECT_EQ(qp_a->limit_rate({0, 0, 1, 0}), EINVAL);
  EXPECT_EQ(qp_a->limit_rate({1, 0, 0, 1}), EINVAL);
  device::Qp* fresh = a.create_qp();
  EXPECT_EQ(fresh->limit_rate({1, 0, 0, 0}), EINVAL);  // not RTS
}

TEST_F(RateLimit, IsAnAttributeAsWell) {
  ibv_qp_attr change{};
  change.rate_limit = 8000;
  ASSERT_EQ(qp_a->modify(change, IBV_QP_RATE_LIMIT), 0);
  EXPECT_GT(write(100'000), milliseconds(90));
  change.rate_limit = Pacer::kMaxRate + 1;
  EXPECT_EQ(qp_a->modify(change, IBV_QP_RATE_LIMIT), EINVAL);
  change.rate_limit = 0;
  ASSERT_EQ(qp_a->modify(change, IBV_QP_RATE_LIMIT), 0);
  EXPECT_LT(write(100'000), milliseconds(50));
}

TEST_F(RateLimit, EndsWithAReset) {
  ASSERT_EQ(qp_a->limit_rate({8, 0, 0, 0}), 0);
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  ibv_qp_attr now{};
  ASSERT_EQ(qp_a->query(&now), 0);
  EXPECT_EQ(now.rate_limit, 0u);
}

}  // namespace
}  // namespace ferry::rnic::testing
