#include <algorithm>

#include "verbs/calls/request_builder.h"
#include "verbs/entry.h"
#include "verbs/objects.h"

// ibv_qp_ex: work requests built by calls. They become the list that ibv_post_send() takes.
namespace ferry::verbs {
namespace {

constexpr std::uint64_t kDatagramOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kUnreliableOperations = kDatagramOperations | IBV_QP_EX_WITH_RDMA_WRITE |
                                                IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                                IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t kReliableOperations =
    kUnreliableOperations | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
    IBV_QP_EX_WITH_ATOMIC_WRITE;

constexpr std::size_t kAtomicSize = 8;  // bytes

// Which operations a type of QP has (clause 10.8.2, table 38; XRC as RC).
std::uint64_t operations_of(ibv_qp_type type) {
  switch (static_cast<unsigned>(type)) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND: return kReliableOperations;
    case IBV_QPT_UC: return kUnreliableOperations;
    case IBV_QPT_UD: return kDatagramOperations;
    default: return 0;  // XRC targets send nothing
  }
}

RequestBuilder& builder(ibv_qp_ex* qp) {
  return *reinterpret_cast<Qp*>(qp)->builder;
}

// Builders and setters return nothing: ibv_wr_complete() returns the first error of them.
template <typename Body>
void build(ibv_qp_ex* qp, Body&& body) {
  RequestBuilder& b = builder(qp);
  const int error = guarded([&] { return body(b); });
  if (error && !b.error) b.error = error;
}

template <typename Fill>
void add(ibv_qp_ex* qp, ibv_wr_opcode opcode, Fill fill) {
  build(qp, [&](RequestBuilder& b) {
    b.first_sge.push_back(b.sges.size());
    ibv_send_wr& request = b.requests.emplace_back();
    request.wr_id = qp->wr_id;
    request.send_flags = qp->wr_flags;
    request.opcode = opcode;
    fill(request);
    return 0;
  });
}

// Runs `set` on the request that was built last.
template <typename Set>
void set(ibv_qp_ex* qp, Set set) {
  build(qp, [&](RequestBuilder& b) {
    if (b.requests.empty()) return EINVAL;
    set(b, b.requests.back());
    return 0;
  });
}

auto remote(std::uint32_t rkey, std::uint64_t address) {
  return [=](ibv_send_wr& request) {
    request.wr.rdma.rkey = rkey;
    request.wr.rdma.remote_addr = address;
  };
}

void wr_send(ibv_qp_ex* qp) {
  add(qp, IBV_WR_SEND, [](ibv_send_wr&) {});
}
void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  add(qp, IBV_WR_SEND_WITH_IMM, [=](ibv_send_wr& request) { request.imm_data = immediate; });
}
void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  add(qp, IBV_WR_SEND_WITH_INV, [=](ibv_send_wr& request) { request.invalidate_rkey = rkey; });
}
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add(qp, IBV_WR_RDMA_WRITE, remote(rkey, address));
}
void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  add(qp, IBV_WR_RDMA_WRITE_WITH_IMM, [=](ibv_send_wr& request) {
    remote(rkey, address)(request);
    request.imm_data = immediate;
  });
}
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add(qp, IBV_WR_RDMA_READ, remote(rkey, address));
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
  add(qp, IBV_WR_ATOMIC_CMP_AND_SWP, [=](ibv_send_wr& request) {
    request.wr.atomic = {address, compare, swap, rkey};
  });
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t add_value) {
  add(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, [=](ibv_send_wr& request) {
    request.wr.atomic = {address, add_value, 0, rkey};
  });
}
void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  add(qp, IBV_WR_LOCAL_INV, [=](ibv_send_wr& request) { request.invalidate_rkey = rkey; });
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  if (!mw || !info) return build(qp, [](RequestBuilder&) { return EINVAL; });
  add(qp, IBV_WR_BIND_MW, [=](ibv_send_wr& request) {
    request.bind_mw.mw = mw;
    request.bind_mw.rkey = rkey;
    request.bind_mw.bind_info = *info;
  });
}

void replace_sges(RequestBuilder& b, ibv_send_wr& request, std::size_t count, const ibv_sge* list) {
  b.first_sge.back() = b.sges.size();
  b.sges.insert(b.sges.end(), list, list + count);
  request.num_sge = static_cast<int>(count);
}

void set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  set(qp, [=](RequestBuilder& b, ibv_send_wr& request) { replace_sges(b, request, count, list); });
}
void set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge one{address, length, lkey};
  set_sge_list(qp, 1, &one);
}

void set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* buffers) {
  set(qp, [=](RequestBuilder& b, ibv_send_wr& request) {
    auto& data = b.inline_data.emplace_back();
    for (std::size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(buffers[i].addr);
      data.insert(data.end(), from, from + buffers[i].length);
    }
    const ibv_sge one{reinterpret_cast<std::uintptr_t>(data.data()),
                      static_cast<std::uint32_t>(data.size()), 0};
    replace_sges(b, request, 1, &one);
    request.send_flags |= IBV_SEND_INLINE;
  });
}
void set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf one{address, length};
  set_inline_data_list(qp, 1, &one);
}

// The value is inline data: QPs made for this operation have room for it.
void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, const void* value) {
  add(qp, IBV_WR_ATOMIC_WRITE, remote(rkey, address));
  set_inline_data(qp, const_cast<void*>(value), kAtomicSize);
}

void set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
  set(qp, [=](RequestBuilder&, ibv_send_wr& request) { request.wr.ud = {ah, qpn, qkey}; });
}
void set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t srqn) {
  set(qp, [=](RequestBuilder&, ibv_send_wr& request) { request.qp_type.xrc.remote_srqn = srqn; });
}

// Stands in for builders that the QP was not made for, and for setters that its type does not have.
template <int error, typename... Arguments>
void refuse(ibv_qp_ex* qp, Arguments...) {
  build(qp, [](RequestBuilder&) { return error; });
}

void wr_start(ibv_qp_ex* qp) {
  builder(qp).mutex.lock();
}

void finish(RequestBuilder& b) {
  b.requests.clear();
  b.sges.clear();
  b.inline_data.clear();
  b.first_sge.clear();
  b.error = 0;
  b.mutex.unlock();
}

int wr_complete(ibv_qp_ex* qp) {
  RequestBuilder& b = builder(qp);
  int error = b.error;
  if (!error && !b.requests.empty()) {
    for (std::size_t i = 0; i < b.requests.size(); ++i) {
      b.requests[i].sg_list = b.sges.data() + b.first_sge[i];
      b.requests[i].next = i + 1 < b.requests.size() ? &b.requests[i + 1] : nullptr;
    }
    error = to_qp(&qp->qp_base)->device->post_all(b.requests.data());
  }
  finish(b);
  return error;
}

void wr_abort(ibv_qp_ex* qp) {
  finish(builder(qp));
}

template <typename... Arguments>
void set_builder(void (*ibv_qp_ex::*place)(ibv_qp_ex*, Arguments...), ibv_qp_ex& ex, bool wanted,
                 void (*function)(ibv_qp_ex*, Arguments...)) {
  ex.*place = wanted ? function : refuse<EOPNOTSUPP, Arguments...>;
}

int make_extended(Context& context, ibv_qp_init_attr_ex* attributes, Qp** out) {
  constexpr std::uint32_t kSupported =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
      IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto given = [&](std::uint32_t bit) { return (attributes->comp_mask & bit) != 0; };
  if (attributes->comp_mask & ~kSupported) return EOPNOTSUPP;
  const std::uint32_t create_flags =
      given(IBV_QP_INIT_ATTR_CREATE_FLAGS) ? attributes->create_flags : 0;
  if (given(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attributes->max_tso_header) return EOPNOTSUPP;
  const bool builds = given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
  const std::uint64_t operations = builds ? attributes->send_ops_flags : 0;
  ibv_qp_init_attr init{attributes->qp_context, attributes->send_cq, attributes->recv_cq,
                        attributes->srq,        attributes->cap,     attributes->qp_type,
                        attributes->sq_sig_all};
  if (operations & ~operations_of(init.qp_type)) return EOPNOTSUPP;
  if (operations & IBV_QP_EX_WITH_ATOMIC_WRITE) {
    init.cap.max_inline_data =
        std::max<std::uint32_t>(init.cap.max_inline_data, std::uint32_t{kAtomicSize});
  }
  auto requests = builds ? std::make_unique<RequestBuilder>() : nullptr;
  ibv_pd* pd = given(IBV_QP_INIT_ATTR_PD) ? attributes->pd : nullptr;
  ibv_xrcd* xrcd = given(IBV_QP_INIT_ATTR_XRCD) ? attributes->xrcd : nullptr;
  if (int error = make_qp(context, pd, xrcd, &init, create_flags, operations, out)) return error;
  attributes->cap = init.cap;
  if (builds) {
    (*out)->builder = std::move(requests);
    set_qp_ex_functions(**out, operations);
  }
  return 0;
}

}  // namespace

void set_qp_ex_functions(Qp& qp, std::uint64_t operations) {
  ibv_qp_ex& ex = qp.ex;
  const auto with = [&](std::uint64_t bit) { return (operations & bit) != 0; };
  set_builder(&ibv_qp_ex::wr_send, ex, with(IBV_QP_EX_WITH_SEND), wr_send);
  set_builder(&ibv_qp_ex::wr_send_imm, ex, with(IBV_QP_EX_WITH_SEND_WITH_IMM), wr_send_imm);
  set_builder(&ibv_qp_ex::wr_send_inv, ex, with(IBV_QP_EX_WITH_SEND_WITH_INV), wr_send_inv);
  set_builder(&ibv_qp_ex::wr_rdma_write, ex, with(IBV_QP_EX_WITH_RDMA_WRITE), wr_rdma_write);
  set_builder(&ibv_qp_ex::wr_rdma_write_imm, ex, with(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM),
              wr_rdma_write_imm);
  set_builder(&ibv_qp_ex::wr_rdma_read, ex, with(IBV_QP_EX_WITH_RDMA_READ), wr_rdma_read);
  set_builder(&ibv_qp_ex::wr_atomic_cmp_swp, ex, with(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP),
              wr_atomic_cmp_swp);
  set_builder(&ibv_qp_ex::wr_atomic_fetch_add, ex, with(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
              wr_atomic_fetch_add);
  set_builder(&ibv_qp_ex::wr_atomic_write, ex, with(IBV_QP_EX_WITH_ATOMIC_WRITE), wr_atomic_write);
  set_builder(&ibv_qp_ex::wr_local_inv, ex, with(IBV_QP_EX_WITH_LOCAL_INV), wr_local_inv);
  set_builder(&ibv_qp_ex::wr_bind_mw, ex, with(IBV_QP_EX_WITH_BIND_MW), wr_bind_mw);
  ex.wr_send_tso = refuse<EOPNOTSUPP, void*, std::uint16_t, std::uint16_t>;
  ex.wr_set_ud_addr = qp.init.qp_type == IBV_QPT_UD
                          ? set_ud_addr
                          : refuse<EINVAL, ibv_ah*, std::uint32_t, std::uint32_t>;
  ex.wr_set_xrc_srqn =
      qp.init.qp_type == IBV_QPT_XRC_SEND ? set_xrc_srqn : refuse<EINVAL, std::uint32_t>;
  ex.wr_set_sge = set_sge;
  ex.wr_set_sge_list = set_sge_list;
  ex.wr_set_inline_data = set_inline_data;
  ex.wr_set_inline_data_list = set_inline_data_list;
  ex.wr_start = wr_start;
  ex.wr_complete = wr_complete;
  ex.wr_abort = wr_abort;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  Qp* qp = nullptr;
  const int error = guarded([&] { return make_extended(*context_of(context), attributes, &qp); });
  return pointer_or_errno(error, error ? nullptr : &qp->qp);
}

}  // namespace ferry::verbs
