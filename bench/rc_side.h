// Connected RC queue pairs, for programs that measure the RNIC within one process.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "udp_socket.h"

namespace ferry::bench {

inline constexpr std::uint8_t kPort = 1;

// One RNIC with its RC queue pairs, a buffer, and one CQ for all.
struct RcSide {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  std::vector<ibv_qp*> qps;
  std::vector<char> memory;

  // `count` queue pairs with queues of these depths, in requests of one element; a buffer of
  // `bytes`.
  void open(ibv_device* device, std::uint32_t count, std::uint32_t send_depth,
            std::uint32_t receive_depth, std::size_t bytes) {
    memory.resize(bytes);
    context = ibv_open_device(device);
    if (!context) throw system_error("cannot open the device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 2 * static_cast<int>(count) + 14, nullptr, nullptr, 0);
    if (!pd || !cq || ibv_query_gid(context, kPort, 0, &gid) != 0)
      throw system_error("no CQ or GID");
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!mr) throw system_error("cannot register memory");
    for (std::uint32_t i = 0; i < count; ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq;
      init.qp_type = IBV_QPT_RC;
      init.cap.max_send_wr = send_depth;
      init.cap.max_recv_wr = receive_depth;
      init.cap.max_send_sge = init.cap.max_recv_sge = 1;
      qps.push_back(ibv_create_qp(pd, &init));
      if (!qps.back()) throw system_error("cannot create a QP");
    }
  }

  void connect(const RcSide& peer) {
    for (std::size_t i = 0; i < qps.size(); ++i) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = kPort;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
      int error = ibv_modify_qp(
          qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      attr.qp_state = IBV_QPS_RTR;
      attr.path_mtu = IBV_MTU_4096;
      attr.dest_qp_num = peer.qps[i]->qp_num;
      attr.max_dest_rd_atomic = 1;
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = kPort;
      attr.ah_attr.grh.dgid = peer.gid;
      attr.ah_attr.grh.hop_limit = 1;
      if (error == 0) {
        error = ibv_modify_qp(qps[i], &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      }
      attr.qp_state = IBV_QPS_RTS;
      attr.timeout = 18;
      attr.retry_cnt = attr.rnr_retry = 7;
      attr.max_rd_atomic = 1;
      if (error == 0) {
        error = ibv_modify_qp(qps[i], &attr,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      }
      if (error != 0)
        throw std::runtime_error("cannot connect a QP: " + std::string(strerror(error)));
    }
  }

  void close() {
    for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
};

}  // namespace ferry::bench
