#include "connect.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "device.h"
#include "failure.h"

namespace stream_check {
namespace {

void modify(ibv_qp* qp, uint32_t number, ibv_qp_attr attr, int mask, const char* what) {
  const int error = ibv_modify_qp(qp, &attr, mask);
  if (error != 0) {
    throw Failure("cannot bring QP " + std::to_string(number) + " to " + what + ": " +
                  std::strerror(error) + "; check device and GID on both sides");
  }
}

}  // namespace

void to_init(ibv_qp* qp, uint32_t number) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  modify(qp, number, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
         "INIT");
}

void connect(ibv_qp* qp, const Connection& connection) {
  const Endpoint& local = connection.local;
  const Endpoint& peer = connection.peer;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_code(std::min(local.mtu, peer.mtu));
  attr.dest_qp_num = connection.peer_qp.qpn;
  attr.rq_psn = connection.peer_qp.psn;
  attr.max_dest_rd_atomic = static_cast<uint8_t>(local.reads_served);
  attr.min_rnr_timer = 12;  // 0.64 ms
  attr.ah_attr.is_global = 1;
  attr.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(connection.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  std::memcpy(attr.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
  modify(qp, connection.number, attr,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "RTR");

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = connection.local_qp.psn;
  attr.timeout = static_cast<uint8_t>(connection.timeout);
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;  // without limit
  attr.max_rd_atomic =
      static_cast<uint8_t>(std::min(connection.reads_initiated, peer.reads_served));
  modify(qp, connection.number, attr,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
}

}  // namespace stream_check
