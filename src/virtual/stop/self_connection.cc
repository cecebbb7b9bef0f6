#include "virtual/stop/self_connection.h"

#include <cerrno>
#include <vector>

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

// Gives the part of the mask that a QP of this type takes: a target sends nothing, an initiator answers nothing.
int of_type(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return mask;
}

}  // namespace

SelfConnection::~SelfConnection() {
  if (target_ != nullptr) device_.destroy(target_);
  if (qp_ != nullptr) device_.destroy(qp_);
  if (cq_ != nullptr) device_.destroy(cq_);
}

int SelfConnection::open(device::Pd& pd, device::Srq* srq, std::uint32_t requests) {
  if (const int error = create_cq(2 * requests)) return error;
  device::QpInit init;
  init.pd = &pd;
  init.send_cq = init.recv_cq = cq_;
  init.srq = srq;
  init.cap.max_send_wr = requests;
  init.cap.max_send_sge = 1;
  if (const int error = device_.create_qp(&init, &qp_)) return error;
  return connect();
}

int SelfConnection::open_xrc(device::Pd& pd, device::Xrcd& xrcd, std::uint32_t requests,
                             const std::function<bool(std::uint32_t)>& is_taken) {
  if (const int error = create_cq(requests)) return error;
  device::QpInit init;
  init.type = IBV_QPT_XRC_SEND;
  init.pd = &pd;
  init.send_cq = cq_;
  init.cap.max_send_wr = requests;
  init.cap.max_send_sge = 1;
  if (const int error = device_.create_qp(&init, &qp_)) return error;
  if (const int error = create_target(xrcd, is_taken)) return error;
  return connect();
}

int SelfConnection::create_target(device::Xrcd& xrcd,
                                  const std::function<bool(std::uint32_t)>& is_taken) {
  // Targets whose number is taken are kept until there is one whose number is free.
  std::vector<device::Qp*> colliding;
  int error = 0;
  for (;;) {
    device::QpInit init;
    init.type = IBV_QPT_XRC_RECV;
    init.xrcd = &xrcd;
    device::Qp* made = nullptr;
    error = device_.create_qp(&init, &made);
    if (error != 0) break;
    if (!is_taken(made->qpn())) {
      target_ = made;
      break;
    }
    colliding.push_back(made);
  }
  for (device::Qp* qp : colliding) device_.destroy(qp);
  return error;
}

int SelfConnection::create_cq(std::uint32_t entries) {
  device::CqInit init;
  init.cqe = static_cast<int>(entries);
  return device_.create_cq(init, &cq_);
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
  if (target_ == nullptr) return connect(*qp_, *qp_, IBV_QPT_RC, gid);
  if (const int error = connect(*target_, *qp_, IBV_QPT_XRC_RECV, gid)) return error;
  return connect(*qp_, *target_, IBV_QPT_XRC_SEND, gid);
}

int SelfConnection::connect(device::Qp& qp, const device::Qp& peer, ibv_qp_type type,
                            const ibv_gid_entry& gid) {
  ibv_port_attr port{};
  const auto number = static_cast<std::uint8_t>(gid.port_num);
  if (const int error = device_.query_port(number, &port)) return error;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = number;
  if (const int error = qp.modify(
          attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    return error;
  }
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_256;
  attributes.dest_qp_num = peer.qpn();
  attributes.rq_psn = attributes.sq_psn = kPsn;
  attributes.min_rnr_timer = 1;  // 10 us
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = number;
  attributes.ah_attr.dlid = port.lid;
  attributes.ah_attr.grh.dgid = gid.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid.gid_index);
  attributes.ah_attr.grh.hop_limit = 1;
  const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (const int error = qp.modify(attributes, of_type(type, to_rtr))) return error;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = 0;
  const int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  return qp.modify(attributes, of_type(type, to_rts));
}

}  // namespace ferry::virt
