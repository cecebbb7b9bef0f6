#pragma once

#include <utility>

#include "two_programs.h"

namespace ferry::virt::testing {

inline bool is_made(device::Qp* qp) {
  return behind(qp) != nullptr;
}

// Two connections, m.qp with p.qp and m_other with p_other. Nothing is under way.
struct TwoConnections : TwoPrograms {
  device::Qp* m_other = nullptr;
  device::Qp* p_other = nullptr;

  void SetUp() override {
    m.start(kFirst);
    p.start(kThird);
    m_other = m.create_qp();
    p_other = p.create_qp();
    connect(m.qp, p.qp);
    connect(m_other, p_other);
    m.context->prepare();
    p.context->prepare();
  }
  // One of m with one of p. `timeout`: ibv_qp_attr::timeout of the latter.
  void connect(device::Qp* mine, device::Qp* its, std::uint8_t timeout = 18) {
    Program::init(mine);
    Program::init(its);
    r::to_rts(mine, its->qpn(), p.gid());
    ibv_qp_attr attributes = r::attributes(IBV_QPS_RTR, mine->qpn(), m.gid());
    ASSERT_EQ(its->modify(attributes, r::kRtrMask), 0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = timeout;
    ASSERT_EQ(its->modify(attributes, r::kRtsMask), 0);
  }
  // Another connection, whose end at p gives up soon.
  std::pair<device::Qp*, device::Qp*> impatient() {
    std::pair<device::Qp*, device::Qp*> qps{m.create_qp(), p.create_qp()};
    connect(qps.first, qps.second, 10);
    return qps;
  }
  void stop() {
    suspend(m);
    m.stop();
    m.park();
    m.device->address = kSecond;
    trace.clear();
  }
  void resume() {
    m.unpark();
    m.context->resume(false);
  }
  static int send(device::Qp* qp, std::uint64_t id, std::uint64_t value) {
    return Send(IBV_WR_SEND, id, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(qp);
  }
  static int receive(Side& side, device::Qp* qp, std::uint64_t id, std::size_t place) {
    return r::post_receive(qp, id, &side.memory[place], 8, side.mr);
  }
  std::size_t count(const std::string& letter) {
    return static_cast<std::size_t>(std::count(trace.begin(), trace.end(), letter));
  }
  // One message each way over each connection.
  void expect_traffic_of_both() {
    for (const auto& [mine, its] : {std::pair{m.qp, p.qp}, std::pair{m_other, p_other}}) {
      ASSERT_EQ(receive(m, mine, 1, 1), 0);
      ASSERT_EQ(receive(p, its, 1, 1), 0);
      ASSERT_EQ(send(mine, 2, 77), 0);
      ASSERT_EQ(send(its, 2, 78), 0);
      for (Side* side : {&m, &p}) {
        for (int i = 0; i < 2; ++i) {
          const ibv_wc completion = wait_completion(side->cq);
          EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
          EXPECT_EQ(completion.qp_num, (side == &m ? mine : its)->qpn());
        }
      }
      EXPECT_EQ(p.memory[1], 77u);
      EXPECT_EQ(m.memory[1], 78u);
      EXPECT_TRUE(m.nothing_more());
      EXPECT_TRUE(p.nothing_more());
    }
  }
};

}  // namespace ferry::virt::testing
