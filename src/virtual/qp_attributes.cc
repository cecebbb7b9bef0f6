#include "virtual/qp_attributes.h"

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

}  // namespace

void QpAttributes::merge(const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_STATE) != 0) {
    if (attributes.qp_state == IBV_QPS_RESET) *this = {};
    values_.qp_state = attributes.qp_state;
  }
  mask_ |= mask;
  for (const auto& field : kBytes) copy(&values_, attributes, mask, field);
  for (const auto& field : kWords) copy(&values_, attributes, mask, field);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) values_.qp_access_flags = attributes.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) values_.pkey_index = attributes.pkey_index;
  if ((mask & IBV_QP_PATH_MTU) != 0) values_.path_mtu = attributes.path_mtu;
  if ((mask & IBV_QP_AV) != 0) values_.ah_attr = attributes.ah_attr;
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
  // An application of UD may give a Q_Key in any of its transitions, and no access flags.
  if (type != IBV_QPT_UD) of_state &= ~IBV_QP_QKEY;
  return (mask_ & of_state) | IBV_QP_STATE;
}

}  // namespace ferry::virt
