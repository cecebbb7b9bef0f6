#include "virtual/queues/qp_attributes.h"

#include <cstdint>

namespace ferry::virt {
namespace {

// An attribute of ibv_modify_qp that is one member of ibv_qp_attr.
template <typename T>
struct Field {
  int mask;
  T ibv_qp_attr::*member;
};

template <typename T>
void copy(ibv_qp_attr* to, const ibv_qp_attr& from, int mask, const Field<T>& field) {
  if ((mask & field.mask) != 0) to->*field.member = from.*field.member;
}

constexpr Field<std::uint8_t> kBytes[] = {
    {IBV_QP_PORT, &ibv_qp_attr::port_num},
    {IBV_QP_TIMEOUT, &ibv_qp_attr::timeout},
    {IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt},
    {IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry},
    {IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer},
    {IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic},
    {IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic},
};
constexpr Field<std::uint32_t> kWords[] = {
    {IBV_QP_QKEY, &ibv_qp_attr::qkey},
    {IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn},
    {IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn},
    {IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num},
    {IBV_QP_RATE_LIMIT, &ibv_qp_attr::rate_limit},
};

void copy_all(ibv_qp_attr* to, const ibv_qp_attr& from, int mask) {
  if ((mask & IBV_QP_STATE) != 0) to->qp_state = from.qp_state;
  for (const auto& field : kBytes) copy(to, from, mask, field);
  for (const auto& field : kWords) copy(to, from, mask, field);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) to->qp_access_flags = from.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) to->pkey_index = from.pkey_index;
  if ((mask & IBV_QP_PATH_MTU) != 0) to->path_mtu = from.path_mtu;
  if ((mask & IBV_QP_AV) != 0) to->ah_attr = from.ah_attr;
}

}  // namespace

void QpAttributes::merge(const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RESET) *this = {};
  mask_ |= mask;
  copy_all(&values_, attributes, mask);
}

void QpAttributes::give(ibv_qp_attr* out) const {
  copy_all(out, values_, mask_);
}

bool QpAttributes::suffice_for_rtr(ibv_qp_type type, int mask) {
  int needed = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV)
    needed |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return (mask & needed) == needed;
}

int QpAttributes::mask_to(ibv_qp_type type, ibv_qp_state state) const {
  int of_state = 0;
  switch (state) {
    case IBV_QPS_INIT:
      of_state = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY;
      break;
    case IBV_QPS_RTR:
      of_state = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      break;
    case IBV_QPS_RTS:
      of_state = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RATE_LIMIT;
      break;
    default: break;
  }
  // An application may give a UD QP a Q_Key in any transition, but gives it no access flags.
  if (type != IBV_QPT_UD) of_state &= ~IBV_QP_QKEY;
  return (mask_ & of_state) | IBV_QP_STATE;
}

}  // namespace ferry::virt
