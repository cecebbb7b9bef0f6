#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"

// The completions and events by which a QP tells the application, and the receive WQEs that it
// takes.
namespace ferry::rnic {

static_assert(static_cast<int>(transport::Status::kLocalLength) == IBV_WC_LOC_LEN_ERR);
static_assert(static_cast<int>(transport::Status::kLocalQpOperation) == IBV_WC_LOC_QP_OP_ERR);
static_assert(static_cast<int>(transport::Status::kLocalProtection) == IBV_WC_LOC_PROT_ERR);
static_assert(static_cast<int>(transport::Status::kFlush) == IBV_WC_WR_FLUSH_ERR);
static_assert(static_cast<int>(transport::Status::kWindowBind) == IBV_WC_MW_BIND_ERR);
static_assert(static_cast<int>(transport::Status::kBadResponse) == IBV_WC_BAD_RESP_ERR);
static_assert(static_cast<int>(transport::Status::kLocalAccess) == IBV_WC_LOC_ACCESS_ERR);
static_assert(static_cast<int>(transport::Status::kRemoteInvalidRequest) == IBV_WC_REM_INV_REQ_ERR);
static_assert(static_cast<int>(transport::Status::kRemoteAccess) == IBV_WC_REM_ACCESS_ERR);
static_assert(static_cast<int>(transport::Status::kRemoteOperation) == IBV_WC_REM_OP_ERR);
static_assert(static_cast<int>(transport::Status::kRetryExceeded) == IBV_WC_RETRY_EXC_ERR);
static_assert(static_cast<int>(transport::Status::kRnrRetryExceeded) == IBV_WC_RNR_RETRY_EXC_ERR);

namespace {

using transport::Operation;
using transport::Status;

ibv_wc_opcode opcode_of(Operation operation) {
  switch (operation) {
    case Operation::kWrite:
    case Operation::kWriteImm: return IBV_WC_RDMA_WRITE;
    case Operation::kRead: return IBV_WC_RDMA_READ;
    case Operation::kCompareSwap: return IBV_WC_COMP_SWAP;
    case Operation::kFetchAdd: return IBV_WC_FETCH_ADD;
    case Operation::kLocalInvalidate: return IBV_WC_LOCAL_INV;
    case Operation::kBindWindow: return IBV_WC_BIND_MW;
    case Operation::kAtomicWrite: return IBV_WC_ATOMIC_WRITE;
    default: return IBV_WC_SEND;
  }
}

}  // namespace

bool QueuePair::take_receive(transport::ReceiveRequest* out) {
  return init_.srq != nullptr ? init_.srq->take(out) : receives_.pop(out);
}

bool QueuePair::select_srq(std::uint32_t srqn) {
  if (selected_srq_ == nullptr || selected_srq_->number() != srqn) {
    selected_srq_ = engine_.objects().xrc_srq(srqn);
    if (selected_srq_ != nullptr && selected_srq_->init().xrcd != init_.xrcd) {
      selected_srq_ = nullptr;
    }
  }
  return selected_srq_ != nullptr && !selected_srq_->failed();
}

transport::Host::SrqResult QueuePair::take_receive_of(std::uint32_t srqn,
                                                      transport::ReceiveRequest* out) {
  if (!select_srq(srqn)) return SrqResult::kInvalid;
  return selected_srq_->take(out) ? SrqResult::kOk : SrqResult::kEmpty;
}

std::uint32_t QueuePair::receives_posted() const {
  return receives_.count();
}

void QueuePair::add(CompletionQueue& cq, const ibv_wc& completion, bool notable) {
  if (!cq.add(completion, notable)) engine_.events().overflowed();
}

void QueuePair::complete_send(const transport::SendCompletion& completion) {
  ibv_wc wc{};
  wc.wr_id = completion.wr_id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = opcode_of(completion.operation);
  wc.byte_len = completion.bytes;
  wc.qp_num = init_.virtual_qpn;
  add(*init_.send_cq, wc, completion.status != Status::kSuccess);
}

void QueuePair::complete_receive(const transport::ReceiveCompletion& completion) {
  ibv_wc wc{};
  wc.wr_id = completion.wr_id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = completion.is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = completion.bytes;
  if (completion.has_immediate) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = completion.immediate;
  }
  if (completion.has_invalidated) {
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = completion.invalidated_rkey;
  }
  if (completion.has_grh) wc.wc_flags |= IBV_WC_GRH;
  wc.src_qp = completion.source_qpn;
  wc.sl = completion.service_level;
  wc.qp_num = init_.virtual_qpn;
  CompletionQueue* cq = init_.recv_cq;
  if (init_.type == IBV_QPT_XRC_RECV) {
    const SharedReceiveQueue* srq = engine_.objects().xrc_srq(completion.srqn);
    cq = srq != nullptr ? srq->init().cq : nullptr;  // null: the SRQ is destroyed, with its WQEs
  }
  if (cq != nullptr) {
    add(*cq, wc, completion.solicited || completion.status != Status::kSuccess);
  }
}

// The WQEs of an SRQ stay for its other QPs (clause 10.2.9.2). Those that this QP had taken have
// completed already.
void QueuePair::flush_receives() {
  if (init_.srq != nullptr) sink_.asynchronous(IBV_EVENT_QP_LAST_WQE_REACHED, this);
  transport::ReceiveRequest request;
  while (receives_.pop(&request)) {
    transport::ReceiveCompletion completion;
    completion.wr_id = request.wr_id;
    completion.status = Status::kFlush;
    complete_receive(completion);
  }
}

void QueuePair::raise(Event event) {
  switch (event) {
    case Event::kCommunicationEstablished: sink_.asynchronous(IBV_EVENT_COMM_EST, this); break;
    case Event::kQpFatal: sink_.asynchronous(IBV_EVENT_QP_FATAL, this); break;
    case Event::kQpRequestError: sink_.asynchronous(IBV_EVENT_QP_REQ_ERR, this); break;
    case Event::kQpAccessError: sink_.asynchronous(IBV_EVENT_QP_ACCESS_ERR, this); break;
    case Event::kSqDrained: sink_.asynchronous(IBV_EVENT_SQ_DRAINED, this); break;
  }
}

std::uint64_t QueuePair::random() {
  return engine_.environment().random();
}

}  // namespace ferry::rnic
