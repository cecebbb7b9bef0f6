#include "link.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <random>

#include "clock.h"
#include "failure.h"

namespace datagram_check {
namespace {

using stream_check::Failure;

constexpr uint32_t kReceives = 4096;
constexpr uint32_t kSends = 64;
constexpr uint32_t kGrhBytes = 64;  // room for the 40 of the GRH; keeps the message aligned
constexpr uint32_t kGrh = 40;
constexpr uint32_t kQKey = 0x11223344;
constexpr uint64_t kSendId = uint64_t{1} << 63;

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

Link::Link(stream_check::Device* device, ibv_qp_type type, uint32_t size,
           const stream_check::StreamId& to, const stream_check::StreamId& from)
    : device_(*device),
      type_(type),
      size_(size),
      slot_bytes_(kGrhBytes + (size + 63) / 64 * 64),
      to_(to),
      from_(from) {
  const size_t bytes = size_t{kReceives + kSends} * slot_bytes_;
  memory_ = std::make_unique<uint8_t[]>(bytes);
  mr_.reset(ibv_reg_mr(device_.pd(), memory_.get(), bytes, IBV_ACCESS_LOCAL_WRITE));
  if (!mr_) throw Failure("cannot register memory: " + reason());
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = device_.cq();
  init.cap = {kSends, kReceives, 1, 1, 0};
  init.qp_type = type;
  init.sq_sig_all = 1;
  qp_.reset(ibv_create_qp(device_.pd(), &init));
  if (!qp_) throw Failure("cannot create a QP: " + reason());
  psn_ = std::random_device()() & 0xffffff;
}

Link::~Link() = default;

uint8_t* Link::send_slot(uint64_t index) {
  return memory_.get() + (kReceives + index % kSends) * slot_bytes_;
}

stream_check::QpEndpoint Link::endpoint() const {
  stream_check::QpEndpoint result;
  result.qpn = qp_->qp_num;
  result.psn = psn_;
  return result;
}

void Link::modify(ibv_qp_attr attributes, int mask, const char* what) {
  if (const int error = ibv_modify_qp(qp_.get(), &attributes, mask | IBV_QP_STATE); error != 0) {
    throw Failure(std::string("cannot bring the QP to ") + what + ": " + std::strerror(error));
  }
}

void Link::connect(const stream_check::Endpoint& local, const stream_check::Endpoint& peer,
                   const stream_check::QpEndpoint& qp) {
  peer_qpn_ = qp.qpn;
  const bool ud = type_ == IBV_QPT_UD;
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  path.dlid = static_cast<uint16_t>(peer.lid);
  path.grh.hop_limit = 64;
  path.grh.sgid_index = static_cast<uint8_t>(device_.gid_index());
  std::memcpy(path.grh.dgid.raw, peer.gid, sizeof peer.gid);

  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = kQKey;
  modify(attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
         "INIT");
  for (uint64_t i = 0; i < kReceives; ++i) post_receive(i);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = stream_check::mtu_code(std::min(local.mtu, peer.mtu));
  attributes.dest_qp_num = qp.qpn;
  attributes.rq_psn = qp.psn;
  attributes.ah_attr = path;
  modify(attributes, ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, "RTR");
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn_;
  modify(attributes, IBV_QP_SQ_PSN, "RTS");
  if (!ud) return;
  ah_.reset(ibv_create_ah(device_.pd(), &path));
  if (!ah_) throw Failure("cannot create an address handle: " + reason());
}

void Link::post_receive(uint64_t index) {
  std::memset(receive_slot(index), 0, slot_bytes_);
  stream_check::poison(receive_slot(index) + kGrhBytes);
  // UD puts a GRH of 40 bytes in front of the message.
  const uint32_t grh = type_ == IBV_QPT_UD ? kGrh : 0;
  ibv_sge sge{reinterpret_cast<uintptr_t>(receive_slot(index)) + kGrhBytes - grh, size_ + grh,
              mr_->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = index;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(qp_.get(), &wr, &bad); error != 0) {
    fail(std::string("ibv_post_recv: ") + std::strerror(error));
  }
}

bool Link::send() {
  const uint64_t sequence = sendings_.size();
  if (sequence - completed_ == kSends || !error_.empty()) return false;
  uint8_t* slot = send_slot(sequence);
  ibv_sge sge{reinterpret_cast<uintptr_t>(slot), 0, mr_->lkey};
  sge.length =
      stream_check::build_message(slot, to_, stream_check::Op::kSend, sequence, 0, {}, size_);
  ibv_send_wr wr{};
  wr.wr_id = kSendId | sequence;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  if (stream_check::carries_immediate(stream_check::Op::kSend, sequence)) {
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = static_cast<uint32_t>(sequence);
  }
  wr.wr.ud.ah = ah_.get();
  wr.wr.ud.remote_qpn = peer_qpn_;
  wr.wr.ud.remote_qkey = kQKey;
  ibv_send_wr* bad = nullptr;
  const int64_t began_ns = stream_check::realtime_ns();
  if (const int error = ibv_post_send(qp_.get(), &wr, &bad); error != 0) {
    fail(std::string("ibv_post_send: ") + std::strerror(error));
    return false;
  }
  sendings_.push_back({began_ns, stream_check::realtime_ns()});
  return true;
}

int Link::poll() {
  ibv_wc wc[32];
  const int count = ibv_poll_cq(device_.cq(), 32, wc);
  if (count < 0) fail("ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) {
    if (wc[i].status != IBV_WC_SUCCESS) {
      fail(std::string((wc[i].wr_id & kSendId) != 0 ? "a send" : "a receive") + " completed with " +
           ibv_wc_status_str(wc[i].status));
    } else if ((wc[i].wr_id & kSendId) != 0) {
      ++completed_;
    } else {
      take_receive(wc[i]);
    }
  }
  return count;
}

void Link::take_receive(const ibv_wc& wc) {
  const bool ud = type_ == IBV_QPT_UD;
  const auto found =
      stream_check::inspect_message(receive_slot(wc.wr_id) + kGrhBytes, from_, size_);
  const auto& header = found.header;
  bool good = found.state == stream_check::Inspection::State::kGood &&
              wc.byte_len == header.length + (ud ? kGrh : 0);
  if (good) {
    const bool immediate = stream_check::carries_immediate(header.op, header.sequence);
    good = immediate == ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) &&
           (!immediate || wc.imm_data == static_cast<uint32_t>(header.sequence));
  }
  // Where a datagram comes from never changes for the program, wherever its sender is.
  if (ud) good = good && (wc.wc_flags & IBV_WC_GRH) != 0 && wc.src_qp == peer_qpn_;
  if (good) {
    arrivals_.add(header.sequence);
  } else {
    ++corrupted_;
  }
  post_receive(wc.wr_id);
}

void Link::fail(const std::string& text) {
  if (error_.empty()) error_ = text;
}

}  // namespace datagram_check
