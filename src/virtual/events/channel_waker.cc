#include "virtual/events/channel_waker.h"

#include <infiniband/verbs.h>

namespace ferry::virt {

ChannelWaker::~ChannelWaker() {
  for (device::Object* object :
       {static_cast<device::Object*>(qp_), static_cast<device::Object*>(cq_),
        static_cast<device::Object*>(pd_)}) {
    if (object != nullptr) device_.destroy(object);
  }
}

int ChannelWaker::open(device::Channel& channel) {
  if (const int error = device_.alloc_pd(&pd_)) return error;
  device::CqInit of_cq;
  of_cq.cqe = 2;
  of_cq.channel = &channel;
  if (const int error = device_.create_cq(of_cq, &cq_)) return error;
  device::QpInit of_qp;
  of_qp.pd = pd_;
  of_qp.send_cq = of_qp.recv_cq = cq_;
  of_qp.cap.max_send_wr = of_qp.cap.max_recv_wr = 1;
  of_qp.cap.max_send_sge = of_qp.cap.max_recv_sge = 1;
  return device_.create_qp(&of_qp, &qp_);
}

int ChannelWaker::wake() {
  ibv_wc completion{};
  while (cq_->poll(1, &completion) > 0) continue;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  if (qp_->state() != IBV_QPS_RESET) {
    if (const int error = qp_->modify(attributes, IBV_QP_STATE)) return error;
  }
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (const int error = qp_->modify(attributes, kInit)) return error;
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  if (const int error = qp_->post_recv(&receive, &bad)) return error;
  if (const int error = cq_->arm(false)) return error;
  attributes.qp_state = IBV_QPS_ERR;
  return qp_->modify(attributes, IBV_QP_STATE);
}

}  // namespace ferry::virt
