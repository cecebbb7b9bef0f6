#include "stream.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "connect.h"
#include "failure.h"

namespace stream_check {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kIndexMask = (uint64_t{1} << 40) - 1;
constexpr uint32_t kPayloadDepth = kSendDepth - 4;  // the rest is for control messages
constexpr uint64_t kSignalEvery = 4;

size_t slot_size(uint32_t max_length) {
  return (size_t{max_length} + 63) / 64 * 64;
}

size_t memory_size(size_t slot_bytes) {
  const size_t bytes = slot_bytes * (kSendDepth + kReceiveDepth + kWriteSlots + kReadSlots);
  return (bytes + kPage - 1) / kPage * kPage;
}

uint8_t* allocate(size_t bytes) {
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kPage, bytes));
  if (memory == nullptr) {
    throw Failure("no memory for the messages; use fewer --qps or a smaller --size");
  }
  std::memset(memory, 0, bytes);
  return memory;
}

ibv_wr_opcode opcode_of(Op op, bool immediate) {
  switch (op) {
    case Op::kWrite: return immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    case Op::kRead: return IBV_WR_RDMA_READ;
    case Op::kSend:
    case Op::kControl: break;
  }
  return immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
}

ibv_wc_opcode completion_of(Op op) {
  if (op == Op::kWrite) return IBV_WC_RDMA_WRITE;
  return op == Op::kRead ? IBV_WC_RDMA_READ : IBV_WC_SEND;
}

}  // namespace

uint64_t WorkId::pack() const {
  return uint64_t{receive} << 63 | uint64_t{qp} << 48 | static_cast<uint64_t>(op) << 40 |
         (index & kIndexMask);
}

WorkId WorkId::unpack(uint64_t wr_id) {
  WorkId id;
  id.receive = wr_id >> 63;
  id.qp = static_cast<uint16_t>(wr_id >> 48 & 0x7fff);
  id.op = static_cast<Op>(wr_id >> 40 & 0xff);
  id.index = wr_id & kIndexMask;
  return id;
}

std::string WorkId::text() const {
  return "qp " + std::to_string(qp) + (receive ? " receive " : " request ") +
         std::to_string(index) + (receive ? "" : std::string(" (") + op_name(op) + ")");
}

struct Stream::Chain {
  static constexpr size_t kMax = 8;
  size_t count = 0;
  ibv_send_wr wr[kMax];
  ibv_sge sge[kMax];
};

Stream::Stream(Device* device, const Plan& plan, FaultLog* message_faults, RequestFaults* faults)
    : plan_(plan),
      slot_bytes_(slot_size(plan.max_length)),
      faults_(faults),
      memory_(allocate(memory_size(slot_bytes_))),
      receiver_(plan.from, plan.max_length, write_ring(), slot_bytes_, kWriteSlots, message_faults),
      gid_index_(device->gid_index()),
      reads_initiated_(device->reads_initiated()) {
  const auto reg = [&](uint8_t* from, size_t slots, int access) {
    ibv_mr* mr = ibv_reg_mr(device->pd(), from, slots * slot_bytes_, access);
    if (mr == nullptr) {
      throw Failure("cannot register memory: " + std::string(std::strerror(errno)) +
                    "; use fewer --qps or a smaller --size, or raise the memlock limit");
    }
    return mr;
  };
  local_mr_.reset(reg(memory_.get(), kSendDepth + kReceiveDepth, IBV_ACCESS_LOCAL_WRITE));
  write_mr_.reset(reg(write_ring(), kWriteSlots, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  read_mr_.reset(reg(read_slot(0), kReadSlots, IBV_ACCESS_REMOTE_READ));

  ibv_qp_init_attr init{};
  init.send_cq = device->cq();
  init.recv_cq = device->cq();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = kSendDepth;
  init.cap.max_recv_wr = kReceiveDepth;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = 1;
  init.cap.max_inline_data = kMinLength;
  qp_.reset(ibv_create_qp(device->pd(), &init));
  if (!qp_) {
    init.cap.max_inline_data = 0;  // a device need not have inline data
    qp_.reset(ibv_create_qp(device->pd(), &init));
  }
  if (!qp_) {
    throw Failure("cannot create QP " + std::to_string(plan.to.qp) + ": " + std::strerror(errno) +
                  "; use fewer --qps");
  }
  max_inline_ = init.cap.max_inline_data;
  std::random_device random;
  endpoint_.qpn = qp_->qp_num;
  endpoint_.psn = random() & 0xffffff;
  endpoint_.write_address = reinterpret_cast<uintptr_t>(write_ring());
  endpoint_.write_rkey = write_mr_->rkey;
  endpoint_.read_address = reinterpret_cast<uintptr_t>(read_slot(0));
  endpoint_.read_rkey = read_mr_->rkey;
}

uint8_t* Stream::receive_slot(uint64_t index) {
  return memory_.get() + (kSendDepth + index % kReceiveDepth) * slot_bytes_;
}

uint8_t* Stream::read_slot(uint64_t sequence) {
  return write_ring() + (kWriteSlots + sequence % kReadSlots) * slot_bytes_;
}

void Stream::connect(const Endpoint& local, const Endpoint& peer, const QpEndpoint& qp) {
  peer_ = qp;
  to_init(qp_.get(), plan_.to.qp);
  while (receives_posted_ < kReceiveDepth) post_receive(receives_posted_);
  if (failed_) throw Failure("cannot post receives: " + faults_->log.first().front());
  Connection connection;
  connection.number = plan_.to.qp;
  connection.local = local;
  connection.peer = peer;
  connection.local_qp = endpoint_;
  connection.peer_qp = qp;
  connection.gid_index = gid_index_;
  connection.reads_initiated = reads_initiated_;
  connection.timeout = plan_.timeout;
  stream_check::connect(qp_.get(), connection);
}

void Stream::post_receive(uint64_t index) {
  poison(receive_slot(index));
  ibv_sge sge{reinterpret_cast<uintptr_t>(receive_slot(index)), plan_.max_length, local_mr_->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = WorkId{true, plan_.to.qp, Op::kSend, index}.pack();
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_.get(), &wr, &bad);
  if (error != 0) return call_error("ibv_post_recv", error);
  ++receives_posted_;
}

bool Stream::may_post(Op op) const {
  const uint64_t sequence = sent_[static_cast<size_t>(op)];
  if (!plan_.ops[static_cast<size_t>(op)]) return false;
  if (plan_.messages != 0 && sequence >= plan_.messages) return false;
  if (op == Op::kRead) return sequence < got_.reads_published;
  if (op == Op::kWrite && sequence >= got_.writes_consumed + kWriteSlots) return false;
  const bool takes_receive = op == Op::kSend || carries_immediate(op, sequence);
  // A message delivered twice makes the peer consume more than was sent.
  return !takes_receive || receives_used_ < got_.messages_consumed + kReceiveWindow;
}

bool Stream::limit_reached() const {
  if (plan_.messages == 0) return false;
  for (size_t op = 0; op < kOps; ++op) {
    if (plan_.ops[op] && sent_[op] < plan_.messages) return false;
  }
  return true;
}

void Stream::publish_reads() {
  if (!plan_.ops[static_cast<size_t>(Op::kRead)]) return;
  for (; reads_published_ < got_.reads_released + kReadSlots; ++reads_published_) {
    build_message(read_slot(reads_published_), plan_.to, Op::kRead, reads_published_, 0, {},
                  plan_.max_length);
  }
}

// A control message is worth it when a quarter of some ring is free and the peer does not know.
// Less than a quarter unknown never stalls the peer.
bool Stream::credits_due() {
  return receiver_.messages_consumed() - given_.messages_consumed >= kReceiveWindow / 4 ||
         receiver_.release_writes() - given_.writes_consumed >= kWriteSlots / 4 ||
         reads_published_ - given_.reads_published >= kReadSlots / 4 ||
         reads_done_ - given_.reads_released >= kReadSlots / 4;
}

Credits Stream::take_credits() {
  given_.writes_before = sent_[static_cast<size_t>(Op::kWrite)];
  given_.messages_consumed = receiver_.messages_consumed();
  given_.writes_consumed = receiver_.release_writes();
  given_.reads_published = reads_published_;
  given_.reads_released = reads_done_;
  return given_;
}

void Stream::append(Chain* chain, Op op, uint8_t flags) {
  const uint64_t index = posted_++;
  const uint64_t sequence = sent_[static_cast<size_t>(op)];
  const bool immediate = carries_immediate(op, sequence);
  uint8_t* slot = send_slot(index);
  uint32_t length = 0;
  if (op == Op::kRead) {
    poison(slot);
    length = message_length(plan_.from, op, sequence, plan_.max_length);
  } else {
    // A plain WRITE completes no receive, so nobody takes credits from it.
    Credits credits;
    if (op != Op::kWrite || immediate) credits = take_credits();
    length = build_message(slot, plan_.to, op, sequence, flags, credits, plan_.max_length);
    if (op == Op::kSend || immediate) ++receives_used_;
  }
  ++sent_[static_cast<size_t>(op)];
  // READs must be looked at; a full queue must end with a signal, or nothing would empty it.
  const bool last_place = outstanding() >= kPayloadDepth || chain->count + 1 == Chain::kMax;
  const bool signaled =
      op == Op::kRead || op == Op::kControl || last_place || unsignaled_ + 1 >= kSignalEvery;
  unsignaled_ = signaled ? 0 : unsignaled_ + 1;
  requests_[index % kSendDepth] = {op, signaled, sequence, length};

  ibv_sge& sge = chain->sge[chain->count];
  sge = {reinterpret_cast<uintptr_t>(slot), length, local_mr_->lkey};
  ibv_send_wr& wr = chain->wr[chain->count];
  wr = {};
  wr.wr_id = WorkId{false, plan_.to.qp, op, index}.pack();
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode_of(op, immediate);
  wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
  if (op != Op::kRead && length <= max_inline_) wr.send_flags |= IBV_SEND_INLINE;
  if (immediate) wr.imm_data = htonl(static_cast<uint32_t>(sequence));
  if (op == Op::kWrite) {
    wr.wr.rdma.remote_addr = peer_.write_address + sequence % kWriteSlots * slot_bytes_;
    wr.wr.rdma.rkey = peer_.write_rkey;
  } else if (op == Op::kRead) {
    wr.wr.rdma.remote_addr = peer_.read_address + sequence % kReadSlots * slot_bytes_;
    wr.wr.rdma.rkey = peer_.read_rkey;
  }
  if (chain->count > 0) chain->wr[chain->count - 1].next = &wr;
  ++chain->count;
}

void Stream::post_chain(Chain* chain) {
  if (chain->count == 0) return;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_.get(), chain->wr, &bad);
  if (error != 0) {
    call_error("ibv_post_send of " + (bad ? WorkId::unpack(bad->wr_id).text() : "a list"), error);
  }
  chain->count = 0;
}

uint64_t Stream::payload_sent() const {
  const auto count = [this](Op op) { return sent_[static_cast<size_t>(op)]; };
  return count(Op::kSend) + count(Op::kWrite) + count(Op::kRead);
}

void Stream::post(bool stopping, uint64_t budget) {
  if (failed_) return;
  publish_reads();
  Chain chain;
  constexpr Op kCycle[] = {Op::kSend, Op::kWrite, Op::kWrite, Op::kRead, Op::kWrite};
  constexpr size_t kCycleLength = std::size(kCycle);
  size_t refused = 0;
  uint64_t sent = payload_sent();
  while (!stopping && sent < budget && refused < kCycleLength && outstanding() < kPayloadDepth &&
         chain.count < Chain::kMax) {
    const Op op = kCycle[next_op_];
    next_op_ = (next_op_ + 1) % kCycleLength;
    if (may_post(op)) {
      append(&chain, op, 0);
      ++sent;
      refused = 0;
    } else {
      ++refused;
    }
  }
  post_chain(&chain);
  const bool last = !last_sent_ && (stopping || limit_reached());
  if ((last || credits_due()) && outstanding() < kSendDepth && !failed_) {
    append(&chain, Op::kControl, last ? kLastOfQp : 0);
    last_sent_ |= last;
    post_chain(&chain);
  }
}

uint64_t Stream::complete(const ibv_wc& wc) {
  const WorkId id = WorkId::unpack(wc.wr_id);
  if (wc.status != IBV_WC_SUCCESS) {
    failed_ = true;
    ++faults_->error_completions;
    faults_->log.add(id.text() + ": completed with error: " + ibv_wc_status_str(wc.status) +
                     " (vendor " + std::to_string(wc.vendor_err) + ")");
    return 0;
  }
  if (wc.qp_num != qp_->qp_num) {
    completion_fault(wc, "qp_num " + std::to_string(wc.qp_num) + " is not that of the QP, " +
                             std::to_string(qp_->qp_num));
  }
  return id.receive ? complete_receive(wc, id) : complete_request(wc, id);
}

uint64_t Stream::complete_request(const ibv_wc& wc, const WorkId& id) {
  if (id.index < completed_ || id.index >= posted_) {
    completion_fault(
        wc, id.index < completed_ ? "completed twice or out of order" : "was never posted");
    return 0;
  }
  uint64_t bytes = 0;
  for (; completed_ <= id.index; ++completed_) {
    const Request& request = requests_[completed_ % kSendDepth];
    if (completed_ < id.index && request.signaled) {
      completion_fault(wc, "came, but the completion of request " + std::to_string(completed_) +
                               " before it did not");
    }
    if (request.op != Op::kRead && request.op != Op::kControl) bytes += request.length;
  }
  bytes_sent_ += bytes;
  const Request& request = requests_[id.index % kSendDepth];
  if (request.op != id.op || wc.opcode != completion_of(request.op)) {
    completion_fault(wc, "opcode " + std::to_string(wc.opcode) + " does not fit");
  } else if (!request.signaled) {
    completion_fault(wc, "completed though it was not signaled");
  }
  if (request.op == Op::kRead) {
    receiver_.on_read(send_slot(id.index), request.sequence);
    ++reads_done_;
    bytes += request.length;
  }
  return bytes;
}

uint64_t Stream::complete_receive(const ibv_wc& wc, const WorkId& id) {
  if (id.index != receives_completed_) {
    completion_fault(wc, "came instead of receive " + std::to_string(receives_completed_));
    return 0;
  }
  ++receives_completed_;
  std::optional<Credits> credits;
  const bool immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (wc.opcode == IBV_WC_RECV) {
    credits = receiver_.on_send(receive_slot(id.index), wc.byte_len,
                                immediate ? std::optional(ntohl(wc.imm_data)) : std::nullopt);
  } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && immediate) {
    credits = receiver_.on_write_with_immediate(ntohl(wc.imm_data), wc.byte_len);
  } else {
    completion_fault(wc, "opcode " + std::to_string(wc.opcode) + " does not fit a receive");
  }
  if (credits) {
    got_.messages_consumed = std::max(got_.messages_consumed, credits->messages_consumed);
    got_.writes_consumed = std::max(got_.writes_consumed, credits->writes_consumed);
    got_.reads_published = std::max(got_.reads_published, credits->reads_published);
    got_.reads_released = std::max(got_.reads_released, credits->reads_released);
  }
  post_receive(receives_posted_);
  return wc.byte_len;
}

void Stream::completion_fault(const ibv_wc& wc, const std::string& what) {
  ++faults_->completion_faults;
  faults_->log.add(WorkId::unpack(wc.wr_id).text() + ": " + what);
}

void Stream::call_error(const std::string& call, int error) {
  failed_ = true;
  ++faults_->call_errors;
  faults_->log.add("qp " + std::to_string(plan_.to.qp) + ": " + call + ": " + std::strerror(error));
}

void Stream::finish(const std::array<uint64_t, kOps>& sent_by_peer) {
  std::array<uint64_t, kOps> expected = sent_by_peer;
  expected[static_cast<size_t>(Op::kRead)] = sent_[static_cast<size_t>(Op::kRead)];
  receiver_.finish(expected);
}

}  // namespace stream_check
