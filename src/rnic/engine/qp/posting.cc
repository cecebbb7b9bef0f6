#include <array>
#include <cerrno>

#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/requests/work_requests.h"
#include "rnic/memory/copy.h"

// Checks work requests, and copies them into the queues.
namespace ferry::rnic {

static_assert(QueuePair::kMaxSge <= static_cast<int>(transport::kMaxSge));

namespace {

using transport::Operation;

constexpr std::uint32_t kAtomicBytes = 8;

// *out gets the operation that the opcode of a request names. 0 or errno.
int operation_of(const ibv_send_wr& request, Operation* out) {
  switch (raw(request.opcode)) {
    case IBV_WR_SEND: *out = Operation::kSend; return 0;
    case IBV_WR_SEND_WITH_IMM: *out = Operation::kSendImm; return 0;
    case IBV_WR_SEND_WITH_INV: *out = Operation::kSendInvalidate; return 0;
    case IBV_WR_RDMA_WRITE: *out = Operation::kWrite; return 0;
    case IBV_WR_RDMA_WRITE_WITH_IMM: *out = Operation::kWriteImm; return 0;
    case IBV_WR_RDMA_READ: *out = Operation::kRead; return 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP: *out = Operation::kCompareSwap; return 0;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: *out = Operation::kFetchAdd; return 0;
    case IBV_WR_ATOMIC_WRITE: *out = Operation::kAtomicWrite; return 0;
    case IBV_WR_LOCAL_INV: *out = Operation::kLocalInvalidate; return 0;
    case IBV_WR_BIND_MW: *out = Operation::kBindWindow; return 0;
    case IBV_WR_TSO: return EOPNOTSUPP;
    default: return EINVAL;
  }
}

// Whether a service has an operation (clause 10.8.2, table 38; by annex A14, XRC has what RC has).
bool has_operation(ibv_qp_type type, Operation operation) {
  switch (operation) {
    case Operation::kSend:
    case Operation::kSendImm: return type != IBV_QPT_XRC_RECV;
    case Operation::kWrite:
    case Operation::kWriteImm:
    case Operation::kLocalInvalidate:
    case Operation::kBindWindow: return type != IBV_QPT_XRC_RECV && type != IBV_QPT_UD;
    default: return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
  }
}

bool is_atomic(Operation operation) {
  return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
}

}  // namespace

// Checks and fills the fields that name the other side and the data.
int QueuePair::take_data(const ibv_send_wr& wr, const transport::SendRequest& head, bool post) {
  transport::SendRequest request = head;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > init_.cap.max_send_sge) {
    return EINVAL;
  }
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  for (int i = 0; i < wr.num_sge; ++i) request.length += wr.sg_list[i].length;
  transport::DatagramAddress address;
  if (is_datagram()) {
    if (const int error = take_datagram(wr, &address); error != 0) return error;
    request.datagram = &address;
    request.immediate = wr.imm_data;
  } else {
    request.remote_srqn = wr.qp_type.xrc.remote_srqn;
  }
  if (is_datagram()) {
    if (request.operation != Operation::kSend && request.operation != Operation::kSendImm) {
      return EINVAL;
    }
  } else if (is_atomic(request.operation)) {
    if (is_inline || request.length < kAtomicBytes) return EINVAL;
    request.length = kAtomicBytes;
    request.remote_address = wr.wr.atomic.remote_addr;
    request.rkey = wr.wr.atomic.rkey;
    request.compare_add = wr.wr.atomic.compare_add;
    request.swap = wr.wr.atomic.swap;
  } else {
    if (request.operation == Operation::kRead && is_inline) return EINVAL;
    if (request.operation == Operation::kAtomicWrite && request.length != kAtomicBytes) {
      return EINVAL;
    }
    request.remote_address = wr.wr.rdma.remote_addr;
    request.rkey = wr.wr.rdma.rkey;
    request.immediate = wr.imm_data;
    request.invalidate_rkey = wr.invalidate_rkey;
  }
  if (!is_inline) {
    std::array<transport::Sge, transport::kMaxSge> sges;
    copy_sges(wr.sg_list, wr.num_sge, sges.data());
    request.sge_count = static_cast<std::uint8_t>(wr.num_sge);
    request.sges = sges.data();
    return post ? transport_->post_send(request) : 0;
  }
  if (request.length > init_.cap.max_inline_data) return EINVAL;
  std::array<std::byte, transport::kMaxInline> data;
  std::size_t at = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (!copy_from_application(data.data() + at, reinterpret_cast<const void*>(sge.addr),
                               sge.length)) {
      return EFAULT;
    }
    at += sge.length;
  }
  request.inline_data = data.data();
  return post ? transport_->post_send(request) : 0;
}

int QueuePair::take_bind(const transport::WindowBinding& binding, ibv_mw_type type,
                         bool names_region, const transport::SendRequest& head, bool post) {
  // A window gives no local access: IBV_ACCESS_LOCAL_WRITE means nothing, but kernel devices accept
  // it.
  constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_ZERO_BASED;
  const bool zero_based = (binding.access & IBV_ACCESS_ZERO_BASED) != 0;
  if ((binding.access & ~kAccess) != 0 || (!names_region && binding.length != 0) ||
      (zero_based && type == IBV_MW_TYPE_1)) {
    return EINVAL;
  }
  transport::SendRequest request = head;
  request.binding = &binding;
  return post ? transport_->post_send(request) : 0;
}

int QueuePair::take(const ibv_send_wr& wr, bool post) {
  constexpr unsigned kFlags =
      IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  transport::SendRequest request;
  if (const int error = operation_of(wr, &request.operation); error != 0) return error;
  if ((wr.send_flags & ~kFlags) != 0 || !has_operation(init_.type, request.operation))
    return EINVAL;
  request.wr_id = wr.wr_id;
  request.signaled = init_.sq_sig_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  request.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  if (request.operation == Operation::kLocalInvalidate) {
    request.invalidate_rkey = wr.invalidate_rkey;
    return post ? transport_->post_send(request) : 0;
  }
  if (request.operation == Operation::kBindWindow) {
    if (wr.bind_mw.mw == nullptr) return EINVAL;
    const MemoryWindow* window = engine_.objects().memory().window(wr.bind_mw.mw->handle);
    if (window == nullptr || window->type != IBV_MW_TYPE_2) return EINVAL;
    const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
    const transport::WindowBinding binding{.window = window->handle(),
                                           .rkey = wr.bind_mw.rkey,
                                           .lkey = info.mr != nullptr ? info.mr->lkey : 0,
                                           .address = info.addr,
                                           .length = info.length,
                                           .access = info.mw_access_flags};
    return take_bind(binding, window->type, info.mr != nullptr, request, post);
  }
  return take_data(wr, request, post);
}

int QueuePair::bind_mw(device::Mw* object, const device::MwBind& bind, std::uint32_t* rkey) {
  if (engine_.abandoned()) return ENODEV;
  auto* window = dynamic_cast<MemoryWindow*>(object);
  if (window == nullptr || window->type != IBV_MW_TYPE_1 || window->pd != init_.pd) return EINVAL;
  Engine::Lock lock(engine_);
  transport::SendRequest request;
  request.operation = Operation::kBindWindow;
  request.wr_id = bind.wr_id;
  request.signaled = init_.sq_sig_all || (bind.send_flags & IBV_SEND_SIGNALED) != 0;
  request.fence = (bind.send_flags & IBV_SEND_FENCE) != 0;
  const transport::WindowBinding binding{.window = window->handle(),
                                         .rkey = ibv_inc_rkey(window->posted_key),
                                         .lkey = bind.mr != nullptr ? bind.mr->lkey() : 0,
                                         .address = bind.address,
                                         .length = bind.length,
                                         .access = bind.access};
  const int error = take_bind(binding, window->type, bind.mr != nullptr, request, true);
  if (error != 0) return error;
  *rkey = window->posted_key = binding.rkey;
  engine_.touch(this);
  engine_.transmit(engine_.now());
  return 0;
}

int QueuePair::post_send(ibv_send_wr* list, ibv_send_wr** bad) {
  if (engine_.abandoned()) {
    *bad = list;
    return ENODEV;
  }
  Engine::Lock lock(engine_);
  int error = 0;
  for (; list != nullptr; list = list->next) {
    error = take(*list, /*post=*/true);
    if (error != 0) {
      *bad = list;
      break;
    }
  }
  engine_.post(this, is_under_way());
  return error;
}

int QueuePair::post_all(ibv_send_wr* list) {
  if (engine_.abandoned()) return ENODEV;
  Engine::Lock lock(engine_);
  // In these states a QP completes at once what is posted, so it could not be taken back. Therefore
  // the whole list is checked first.
  if (transport_->state() == transport::QpState::kError ||
      transport_->state() == transport::QpState::kSqe) {
    for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
      if (const int error = take(*wr, /*post=*/false); error != 0) return error;
    }
  }
  const std::uint64_t posted = transport_->posted();
  for (; list != nullptr; list = list->next) {
    if (const int error = take(*list, /*post=*/true); error != 0) {
      transport_->take_back(posted);
      return error;
    }
  }
  engine_.touch(this);
  engine_.transmit(engine_.now());
  return 0;
}

int QueuePair::post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) {
  if (engine_.abandoned()) {
    *bad = list;
    return ENODEV;
  }
  Engine::Lock lock(engine_);
  if (transport_->state() == transport::QpState::kReset || init_.srq != nullptr ||
      init_.recv_cq == nullptr) {
    *bad = list;
    return EINVAL;
  }
  const int error = push_receives(list, init_.cap.max_recv_sge, receives_, bad);
  if (transport_->state() == transport::QpState::kError) {
    flush_receives();
    return error;
  }
  const transport::Time now = engine_.now();
  transport_->receive_posted(now);
  // A touched QP holds its acknowledgement for what the program sends next.
  if (turn != Turn::kTouched && transport_->has_work()) {
    engine_.touch(this);
    engine_.transmit(now);
  }
  return error;
}

}  // namespace ferry::rnic
