#include "hca/queue_pair.h"

#include <array>
#include <cerrno>

#include "hca/completion_queue.h"
#include "hca/doorbell.h"

namespace ferry::hca {
namespace {

// Every attribute of ibv_modify_qp(3), except for the rate limit.
constexpr int kAllAttributes = (IBV_QP_DEST_QPN << 1) - 1;

constexpr std::size_t kBatch = 16;  // requests that are copied at a time

ibv_cq* real_cq(device::Cq* cq) {
  return cq != nullptr ? static_cast<Cq*>(cq)->real : nullptr;
}

}  // namespace

int Qp::create(device::QpInit* init) {
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_context = this;
  wanted.send_cq = real_cq(init->send_cq);
  wanted.recv_cq = real_cq(init->recv_cq);
  if (init->srq != nullptr) wanted.srq = static_cast<Srq*>(init->srq)->real;
  wanted.cap = init->cap;
  wanted.qp_type = init->type;
  wanted.sq_sig_all = init->sq_sig_all ? 1 : 0;
  if (init->xrcd != nullptr) {
    wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    wanted.xrcd = static_cast<Xrcd*>(init->xrcd)->real;
  } else {
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = static_cast<Pd*>(init->pd)->real;
  }
  if (init->block_multicast_loopback) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    wanted.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  }
  if (init->send_operations != 0) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = init->send_operations;
  }
  ibv_context* const context = init->xrcd != nullptr ? wanted.xrcd->context : wanted.pd->context;
  real = ibv_create_qp_ex(context, &wanted);  // ibv_create_qp() if the mask is PD alone
  if (real == nullptr) return error_of(real);
  if (init->send_operations != 0) ex_ = ibv_qp_to_qp_ex(real);
  init->cap = wanted.cap;
  return 0;
}

int Qp::open(ibv_context* context, device::Xrcd& xrcd, std::uint32_t qpn) {
  ibv_qp_open_attr wanted{};
  wanted.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
                     IBV_QP_OPEN_ATTR_CONTEXT;
  wanted.qp_num = qpn;
  wanted.xrcd = static_cast<Xrcd&>(xrcd).real;
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.qp_context = this;
  real = ibv_open_qp(context, &wanted);
  if (real == nullptr) return error_of(real);
  ibv_qp_attr attributes{};
  query(&attributes);  // libibverbs notes the state, which state() gives
  return 0;
}

bool Qp::name(ibv_send_wr* request) const {
  if (request->opcode == IBV_WR_BIND_MW) {
    ibv_mw*& window = request->bind_mw.mw;
    ibv_mr*& region = request->bind_mw.bind_info.mr;
    if (window == nullptr) return false;
    // The application writes the key of its last bind (type 2) into its ibv_mw. The provider of
    // rdma_rxe reads the window's key in the stock ibv_mw, which therefore gets it.
    const std::uint32_t rkey = window->rkey;
    if ((window = names_.mws.find(window->handle)) == nullptr) return false;
    window->rkey = rkey;
    return region == nullptr || (region = names_.find_mr(region->lkey)) != nullptr;
  }
  if (real->qp_type != IBV_QPT_UD) return true;
  ibv_ah*& ah = request->wr.ud.ah;
  return ah != nullptr && (ah = names_.ahs.find(ah->handle)) != nullptr;
}

int Qp::post_named(ibv_send_wr* list, ibv_send_wr** bad) {
  std::array<ibv_send_wr, kBatch> copies;
  std::array<ibv_send_wr*, kBatch> originals;
  while (list != nullptr) {
    std::size_t count = 0;
    bool known = true;
    for (; list != nullptr && count < kBatch; list = list->next, ++count) {
      copies[count] = *list;
      originals[count] = list;
      known = name(&copies[count]);
      if (!known) break;
      copies[count].next = &copies[count + 1];
    }
    if (count > 0) {
      copies[count - 1].next = nullptr;
      ibv_send_wr* failed = nullptr;
      if (const int error = post(copies.data(), &failed)) {
        *bad = failed != nullptr ? originals[static_cast<std::size_t>(failed - copies.data())]
                                 : originals[0];
        return error;
      }
    }
    if (!known) {
      *bad = list;
      return EINVAL;
    }
  }
  return 0;
}

void Qp::build(const ibv_send_wr& request) const {
  const auto& [address, rkey] = request.wr.rdma;
  const auto& atomic = request.wr.atomic;
  ex_->wr_id = request.wr_id;
  ex_->wr_flags = request.send_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  switch (request.opcode) {
    case IBV_WR_SEND: ibv_wr_send(ex_); break;
    case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex_, request.imm_data); break;
    case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(ex_, request.invalidate_rkey); break;
    case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex_, rkey, address); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(ex_, rkey, address, request.imm_data);
      break;
    case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex_, rkey, address); break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(ex_, atomic.rkey, atomic.remote_addr, atomic.compare_add, atomic.swap);
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(ex_, atomic.rkey, atomic.remote_addr, atomic.compare_add);
      break;
    case IBV_WR_LOCAL_INV: ibv_wr_local_inv(ex_, request.invalidate_rkey); return;
    case IBV_WR_BIND_MW:
      ibv_wr_bind_mw(ex_, request.bind_mw.mw, request.bind_mw.rkey, &request.bind_mw.bind_info);
      return;
    case IBV_WR_ATOMIC_WRITE:  // its value is inline data (verbs/calls/queue_pair_ex.cc)
      ibv_wr_atomic_write(ex_, rkey, address, reinterpret_cast<void*>(request.sg_list->addr));
      return;
    default: break;
  }
  if (real->qp_type == IBV_QPT_UD) {
    ibv_wr_set_ud_addr(ex_, request.wr.ud.ah, request.wr.ud.remote_qpn, request.wr.ud.remote_qkey);
  } else if (real->qp_type == IBV_QPT_XRC_SEND) {
    ibv_wr_set_xrc_srqn(ex_, request.qp_type.xrc.remote_srqn);
  }
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    ibv_wr_set_inline_data(ex_, reinterpret_cast<void*>(request.sg_list->addr),
                           request.sg_list->length);
  } else if (request.num_sge == 1) {
    ibv_wr_set_sge(ex_, request.sg_list->lkey, request.sg_list->addr, request.sg_list->length);
  } else {
    ibv_wr_set_sge_list(ex_, static_cast<std::size_t>(request.num_sge), request.sg_list);
  }
}

// The provider posts all of what was built, or nothing.
int Qp::post_all(ibv_send_wr* list) {
  if (ex_ == nullptr) return EOPNOTSUPP;
  ibv_wr_start(ex_);
  for (; list != nullptr; list = list->next) {
    ibv_send_wr copy = *list;
    if (!name(&copy)) {
      ibv_wr_abort(ex_);
      return EINVAL;
    }
    build(copy);
  }
  const int error = error_of(ibv_wr_complete(ex_));
  return error == EACCES ? posted_silently(nullptr) : error;
}

// The provider has told at which request it stopped (`bad`), but not why: the queue is full, or the
// provider does not take that request.
int Qp::posted_silently(const ibv_send_wr* bad) const {
  const int error = ring_doorbell(*real);
  if (error != 0) return error;
  return bad != nullptr ? ENOMEM : 0;
}

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
  ibv_qp_attr wanted = attributes;
  return error_of(ibv_modify_qp(real, &wanted, mask));
}

int Qp::query(ibv_qp_attr* attributes) const {
  ibv_qp_init_attr init{};
  return error_of(ibv_query_qp(real, attributes, kAllAttributes, &init));
}

int Qp::limit_rate(const ibv_qp_rate_limit_attr& attributes) {
  ibv_qp_rate_limit_attr wanted = attributes;
  return error_of(ibv_modify_qp_rate_limit(real, &wanted));
}

int Qp::bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) {
  ibv_mw* mw = static_cast<Mw*>(window)->real;
  ibv_mw_bind wanted{};
  wanted.wr_id = bind.wr_id;
  wanted.send_flags = bind.send_flags;
  if (bind.mr != nullptr) wanted.bind_info.mr = names_.find_mr(bind.mr->lkey());
  wanted.bind_info.addr = bind.address;
  wanted.bind_info.length = bind.length;
  wanted.bind_info.mw_access_flags = bind.access;
  const int error = bind.is_marker && begins_anew_ ? bind_again(wanted, mw)
                                                   : error_of(ibv_bind_mw(real, mw, &wanted));
  if (error == 0) *rkey = mw->rkey;
  return error;
}

int Qp::bind_again(const ibv_mw_bind& bind, ibv_mw* window) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.wr_id = bind.wr_id;
  request.send_flags = bind.send_flags;
  request.bind_mw = {window, window->rkey, bind.bind_info};
  ibv_send_wr* bad = nullptr;
  return post(&request, &bad);
}

}  // namespace ferry::hca
