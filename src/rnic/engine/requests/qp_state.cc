#include "rnic/engine/requests/qp_state.h"

#include <array>
#include <cerrno>

#include "rnic/engine/timing/pacer.h"
#include "rnic/memory/memory.h"

namespace ferry::rnic {
namespace {

constexpr int kStates = IBV_QPS_ERR + 1;

using Table = std::array<std::array<Transition, kStates>, kStates>;

constexpr Table make_connected_table(bool requester, bool responder) {
  Table table{};
  for (int from = 0; from < kStates; ++from) {
    table[from][IBV_QPS_RESET] = {true, 0, 0};
    table[from][IBV_QPS_ERR] = {true, 0, 0};
  }
  // An XRC target sends nothing but acknowledgements, an XRC initiator answers nothing.
  const int answers = responder ? IBV_QP_MIN_RNR_TIMER : 0;
  const int always =
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | answers;
  // Linux allows IBV_QP_RATE_LIMIT in these transitions, for the QPs that a device paces.
  const int paced = requester ? IBV_QP_RATE_LIMIT : 0;
  table[IBV_QPS_RESET][IBV_QPS_INIT] = {true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                                        0};
  table[IBV_QPS_INIT][IBV_QPS_INIT] = {true, 0,
                                       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS};
  table[IBV_QPS_INIT][IBV_QPS_RTR] = {
      true,
      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
          (responder ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
      IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH};
  table[IBV_QPS_RTR][IBV_QPS_RTS] = {
      true,
      IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
          (requester ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0),
      always | paced};
  table[IBV_QPS_RTS][IBV_QPS_RTS] = {true, 0, always | paced};
  table[IBV_QPS_RTS][IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY};
  table[IBV_QPS_SQD][IBV_QPS_RTS] = {true, 0, always};
  table[IBV_QPS_SQD][IBV_QPS_SQD] = {
      true, 0,
      always | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_PKEY_INDEX |
          (requester ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0) |
          (responder ? IBV_QP_MAX_DEST_RD_ATOMIC : 0)};
  return table;
}

// UC and UD (clause 10.3.1) have no responder resources and no acknowledgements, but a send queue
// that enters SQE by itself.
constexpr Table make_unreliable_table(bool datagram) {
  Table table{};
  for (int from = 0; from < kStates; ++from) {
    table[from][IBV_QPS_RESET] = {true, 0, 0};
    table[from][IBV_QPS_ERR] = {true, 0, 0};
  }
  const int own = datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  const int path = datagram ? 0 : IBV_QP_ALT_PATH;
  const int always = IBV_QP_CUR_STATE | own | (datagram ? 0 : path | IBV_QP_PATH_MIG_STATE);
  table[IBV_QPS_RESET][IBV_QPS_INIT] = {true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | own, 0};
  table[IBV_QPS_INIT][IBV_QPS_INIT] = {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | own};
  table[IBV_QPS_INIT][IBV_QPS_RTR] = {
      true, datagram ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
      IBV_QP_PKEY_INDEX | own | path};
  table[IBV_QPS_RTR][IBV_QPS_RTS] = {true, IBV_QP_SQ_PSN, always | IBV_QP_RATE_LIMIT};
  table[IBV_QPS_RTS][IBV_QPS_RTS] = {true, 0, always | IBV_QP_RATE_LIMIT};
  table[IBV_QPS_RTS][IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY};
  table[IBV_QPS_SQD][IBV_QPS_RTS] = {true, 0, always};
  table[IBV_QPS_SQD][IBV_QPS_SQD] = {
      true, 0, always | IBV_QP_PKEY_INDEX | (datagram ? 0 : IBV_QP_PORT | IBV_QP_AV)};
  table[IBV_QPS_SQE][IBV_QPS_RTS] = {true, 0, IBV_QP_CUR_STATE | own};
  return table;
}

constexpr Table kRc = make_connected_table(true, true);
constexpr Table kXrcInitiator = make_connected_table(true, false);
constexpr Table kXrcTarget = make_connected_table(false, true);
constexpr Table kUc = make_unreliable_table(false);
constexpr Table kUd = make_unreliable_table(true);

bool in_range(int value, int low, int high) {
  return value >= low && value <= high;
}

// Whether the attributes that the mask names are in their ranges.
bool values_fit(const ibv_qp_attr& a, int mask, const AttributeLimits& limits) {
  // Programs give a QP the access flags of their MRs too, and kernel devices accept these.
  constexpr unsigned kOfRegions = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
                                  IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING;
  constexpr unsigned kAccess = kOfRegions | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | kFlushGlobal;
  if ((mask & IBV_QP_PORT) != 0 && !in_range(a.port_num, 1, limits.port_count)) return false;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && a.pkey_index >= limits.pkey_count) return false;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && (a.qp_access_flags & ~kAccess) != 0) return false;
  if ((mask & IBV_QP_PATH_MTU) != 0 && !in_range(raw(a.path_mtu), IBV_MTU_256, limits.max_mtu)) {
    return false;
  }
  if ((mask & IBV_QP_DEST_QPN) != 0 && a.dest_qp_num > 0xFFFFFF) return false;
  if ((mask & IBV_QP_RQ_PSN) != 0 && a.rq_psn > 0xFFFFFF) return false;
  if ((mask & IBV_QP_SQ_PSN) != 0 && a.sq_psn > 0xFFFFFF) return false;
  if ((mask & IBV_QP_TIMEOUT) != 0 && a.timeout > 31) return false;
  if ((mask & IBV_QP_RETRY_CNT) != 0 && a.retry_cnt > 7) return false;
  if ((mask & IBV_QP_RNR_RETRY) != 0 && a.rnr_retry > 7) return false;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && a.min_rnr_timer > 31) return false;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && a.max_rd_atomic > limits.max_rd_atomic) return false;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && a.max_dest_rd_atomic > limits.max_rd_atomic) {
    return false;
  }
  if ((mask & IBV_QP_RATE_LIMIT) != 0 && a.rate_limit > Pacer::kMaxRate) return false;
  if ((mask & IBV_QP_AV) != 0) {
    // RoCE has no routes without a GRH (annex A17).
    if (a.ah_attr.is_global == 0 || a.ah_attr.grh.sgid_index >= limits.gid_count) return false;
    if (!in_range(a.ah_attr.port_num, 1, limits.port_count)) return false;
  }
  // The device has no automatic path migration: a QP is always in the same migration state.
  if ((mask & IBV_QP_ALT_PATH) != 0) return false;
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && raw(a.path_mig_state) != IBV_MIG_MIGRATED)
    return false;
  return true;
}

}  // namespace

Transition transition_of(ibv_qp_type type, int from, int to) {
  if (!in_range(from, 0, kStates - 1) || !in_range(to, 0, kStates - 1)) return {};
  switch (raw(type)) {
    case IBV_QPT_RC: return kRc[from][to];
    case IBV_QPT_UC: return kUc[from][to];
    case IBV_QPT_UD: return kUd[from][to];
    case IBV_QPT_XRC_SEND: return kXrcInitiator[from][to];
    case IBV_QPT_XRC_RECV: return kXrcTarget[from][to];
    default: return {};
  }
}

int applicable_mask(ibv_qp_type type, int mask) {
  switch (raw(type)) {
    case IBV_QPT_XRC_SEND: return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV:
      return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    default: return mask;
  }
}

int check_modify(ibv_qp_type type, ibv_qp_state current, const ibv_qp_attr& attributes, int mask,
                 const AttributeLimits& limits, ibv_qp_state* next) {
  const int to = (mask & IBV_QP_STATE) != 0 ? raw(attributes.qp_state) : current;
  const Transition transition = transition_of(type, current, to);
  if (!transition.legal) return EINVAL;
  if ((mask & transition.required) != transition.required) return EINVAL;
  if ((mask & ~(transition.required | transition.optional | IBV_QP_STATE)) != 0) return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) != 0 && raw(attributes.cur_qp_state) != current) return EINVAL;
  if (!values_fit(attributes, mask, limits)) return EINVAL;
  *next = static_cast<ibv_qp_state>(to);
  return 0;
}

}  // namespace ferry::rnic
