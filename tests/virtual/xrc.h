#pragma once

#include <array>

#include "two_programs.h"

namespace ferry::virt::testing {

// A program's end of an XRC connection in either direction: an initiator, and a target with two SRQs, each of which
// has a PD, a CQ and memory of its own.
struct XrcEnd : Program {
  struct Queue {
    device::Pd* pd = nullptr;
    device::Cq* cq = nullptr;
    device::Srq* srq = nullptr;
    device::Mr* mr = nullptr;
    std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(128);
  };
  device::Xrcd* xrcd = nullptr;
  std::array<Queue, 2> queues;
  device::Qp* initiator = nullptr;
  device::Qp* target = nullptr;
  std::deque<device::Letter> letters;  // on their way to the other one

  void start(std::uint32_t address = INADDR_LOOPBACK) {
    open(address);
    ASSERT_EQ(context->open_xrcd({}, &xrcd), 0);
    for (Queue& queue : queues) make(&queue);
    device::QpInit init;
    init.type = IBV_QPT_XRC_SEND;
    init.pd = pd;
    init.send_cq = cq;
    init.cap = {16, 0, 2, 0, 64};
    ASSERT_EQ(context->create_qp(&init, &initiator), 0);
    init = {};
    init.type = IBV_QPT_XRC_RECV;
    init.xrcd = xrcd;
    ASSERT_EQ(context->create_qp(&init, &target), 0);
    for (device::Qp* qp : {initiator, target}) Program::init(qp);
  }
  // `cqe`: the entries of its CQ.
  void make(Queue* queue, int cqe = 200) {
    ASSERT_EQ(context->alloc_pd(&queue->pd), 0);
    ASSERT_EQ(context->create_cq({cqe}, &queue->cq), 0);
    make_srq(queue);
    device::MrInit region{queue->pd, queue->memory.data(), 8 * queue->memory.size(),
                          reinterpret_cast<std::uintptr_t>(queue->memory.data()), kRemote};
    ASSERT_EQ(context->reg_mr(region, &queue->mr), 0);
  }
  void make_srq(Queue* queue) {
    device::SrqInit init;
    init.pd = queue->pd;
    init.xrcd = xrcd;
    init.cq = queue->cq;
    init.attributes = {128, 2, 0};
    ASSERT_EQ(context->create_srq(&init, &queue->srq), 0);
  }
  // Connects both QPs with those of the peer, which connects its own.
  void connect(XrcEnd& peer) {
    r::to_rts(initiator, peer.target->qpn(), peer.gid());
    r::to_rts(target, peer.initiator->qpn(), peer.gid());
  }
  void receive(int queue, std::uint64_t first, std::uint64_t last) {
    Queue& q = queues[queue];
    for (std::uint64_t id = first; id <= last; ++id)
      ASSERT_EQ(r::post_receive(q.srq, id, &q.memory[id], 8, q.mr), 0) << id;
  }
  int post(Send send, std::uint32_t srqn) {
    send.wr.sg_list = &send.sge;
    send.wr.qp_type.xrc.remote_srqn = srqn;
    return send.post(initiator);
  }
  int send(std::uint32_t srqn, std::uint64_t value, std::uint64_t id = 1000) {
    return post(Send(IBV_WR_SEND, id, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
                srqn);
  }
  // The next completion of a receive; it belongs to the target.
  std::uint64_t received(int queue) {
    const ibv_wc wc = wait_completion(queues[queue].cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.qp_num, target->qpn());
    return wc.wr_id;
  }
  void expect_sent(std::uint64_t id = 1000) {
    const ibv_wc wc = wait_completion(cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc.wr_id;
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, initiator->qpn());
  }
  bool nothing_more() {
    ibv_wc wc{};
    return cq->poll(1, &wc) == 0 && queues[0].cq->poll(1, &wc) == 0 &&
           queues[1].cq->poll(1, &wc) == 0;
  }
  void stop() {
    std::uint32_t unacked = 0;
    ASSERT_EQ(context->quiesce(std::chrono::seconds(10), &unacked), 0);
  }
  void park() {
    device::Parcel parcel;
    ASSERT_EQ(context->park(&parcel), 0);
  }
  void unpark() { ASSERT_EQ(context->unpark(context->place()), 0); }
};

// Sends `value` to the SRQ, and gives the wr_id of the receive that got it.
inline std::uint64_t pass(XrcEnd& from, XrcEnd& to, int queue, std::uint64_t value) {
  EXPECT_EQ(from.send(to.queues[queue].srq->number(), value), 0);
  const std::uint64_t id = to.received(queue);
  from.expect_sent();
  EXPECT_EQ(to.queues[queue].memory[id], value);
  return id;
}

}  // namespace ferry::virt::testing
