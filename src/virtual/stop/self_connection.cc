#include "virtual/stop/self_connection.h"

#include <cerrno>

#include "virtual/shadows/gids.h"

namespace ferry::virt {
namespace {

constexpr std::uint32_t kPsn = 1;
constexpr std::uint8_t kTimeout = 14, kRetries = 7;  // kTimeout is 67 ms

// The lower, the better: the interface of a link-local GID may have no route, and the network of a GID
// of RoCE v1 may not carry RoCE v1.
int rank(const ibv_gid_entry& entry) {
  return (entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? 2 : 0) + (is_link_local(entry.gid) ? 1 : 0);
}

}  // namespace

SelfConnection::~SelfConnection() {
  if (qp_ != nullptr) device_.destroy(qp_);
  if (cq_ != nullptr) device_.destroy(cq_);
}

int SelfConnection::open(device::Pd& pd, device::Srq* srq, std::uint32_t requests) {
  device::CqInit cq;
  cq.cqe = static_cast<int>(2 * requests);
  if (const int error = device_.create_cq(cq, &cq_)) return error;
  device::QpInit init;
  init.pd = &pd;
  init.send_cq = init.recv_cq = cq_;
  init.srq = srq;
  init.cap.max_send_wr = requests;
  init.cap.max_send_sge = 1;
  if (const int error = device_.create_qp(&init, &qp_)) return error;
  return connect();
}

bool SelfConnection::find_gid(ibv_gid_entry* gid) {
  bool found = false;
  for (const ibv_gid_entry& entry : device_.gids()) {
    if (found && rank(entry) >= rank(*gid)) continue;
    ibv_port_attr port{};
    if (device_.query_port(static_cast<std::uint8_t>(entry.port_num), &port) != 0 ||
        port.state != IBV_PORT_ACTIVE)
      continue;
    *gid = entry;
    found = true;
  }
  return found;
}

int SelfConnection::connect() {
  ibv_gid_entry gid{};
  if (!find_gid(&gid)) return EADDRNOTAVAIL;
  ibv_port_attr port{};
  const auto number = static_cast<std::uint8_t>(gid.port_num);
  if (const int error = device_.query_port(number, &port)) return error;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = number;
  if (const int error = qp_->modify(
          attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    return error;
  }
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_256;
  attributes.dest_qp_num = qp_->qpn();
  attributes.rq_psn = attributes.sq_psn = kPsn;
  attributes.min_rnr_timer = 1;  // 10 us
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = number;
  attributes.ah_attr.dlid = port.lid;
  attributes.ah_attr.grh.dgid = gid.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid.gid_index);
  attributes.ah_attr.grh.hop_limit = 1;
  if (const int error = qp_->modify(
          attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
    return error;
  }
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = 0;
  return qp_->modify(attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace ferry::virt
