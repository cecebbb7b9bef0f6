#include "worker.h"

#include <time.h>

#include <cerrno>
#include <cstring>

#include "clock.h"
#include "failure.h"

namespace atomic_check {
namespace {

using stream_check::Failure;

constexpr uint64_t kSwapEvery = 4;  // of the requests, one in so many is a COMPARE_SWAP

std::string reason() {
  return std::strerror(errno);
}

bool is_swap(uint64_t index) {
  return index % kSwapEvery == 0;
}

}  // namespace

Worker::Worker(stream_check::Device* device, bool events)
    : device_(*device), depth_(device->reads_initiated()) {
  results_ = std::make_unique<uint64_t[]>(depth_);
  compared_.resize(depth_);
  mr_.reset(
      ibv_reg_mr(device_.pd(), results_.get(), depth_ * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE));
  if (!mr_) throw Failure("cannot register memory: " + reason());
  if (events) {
    channel_.reset(ibv_create_comp_channel(device_.context()));
    if (!channel_) throw Failure("cannot create a completion channel: " + reason());
  }
  cq_.reset(ibv_create_cq(device_.context(), static_cast<int>(depth_), nullptr, channel_.get(), 0));
  if (!cq_) throw Failure("cannot create a CQ: " + reason());
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_.get();
  init.cap = {depth_, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  qp_.reset(ibv_create_qp(device_.pd(), &init));
  if (!qp_) throw Failure("cannot create a QP: " + reason());
}

Worker::~Worker() {
  if (thread_.joinable()) thread_.join();
}

void Worker::modify(ibv_qp_attr attributes, int mask, const char* what) {
  if (const int error = ibv_modify_qp(qp_.get(), &attributes, mask | IBV_QP_STATE); error != 0) {
    throw Failure(std::string("cannot bring the QP to ") + what + ": " + std::strerror(error));
  }
}

void Worker::connect(const stream_check::Endpoint& local, const stream_check::Endpoint& peer,
                     uint32_t peer_qpn) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC;
  modify(attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = stream_check::mtu_code(std::min(local.mtu, peer.mtu));
  attributes.dest_qp_num = peer_qpn;
  attributes.rq_psn = peer_qpn;
  attributes.max_dest_rd_atomic = static_cast<uint8_t>(local.reads_served);
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(device_.gid_index());
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
  modify(attributes,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         "RTR");
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = qp_->qp_num;
  attributes.timeout = 17;  // 0.5 s: many polling threads on few cores keep a peer waiting
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = static_cast<uint8_t>(std::min(depth_, peer.reads_served));
  modify(attributes,
         IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
}

void Worker::start(uint64_t address, uint32_t rkey, uint32_t rate, uint32_t seconds) {
  running_ = true;
  thread_ = std::thread([=, this] {
    run(address, rkey, rate, seconds);
    running_ = false;
  });
}

// At the rate, in bursts that fill the QP. A process that was frozen goes on from now: it does not
// make up for what it could not do.
void Worker::run(uint64_t address, uint32_t rkey, uint32_t rate, uint32_t seconds) {
  const int64_t burst_ns = int64_t{1'000'000'000} * depth_ / rate;
  stream_check::RunningTime time;
  for (time.tick(stream_check::monotonic_ns());
       time.seconds() < seconds && !stopped_ && error_.empty();
       time.tick(stream_check::monotonic_ns())) {
    const int64_t started = stream_check::monotonic_ns();
    for (uint32_t i = 0; i < depth_ && error_.empty(); ++i) post(address, rkey);
    while (completed_ < posted_ && error_.empty()) take_completions(true);
    const int64_t left = burst_ns - (stream_check::monotonic_ns() - started);
    if (left <= 0 || left > burst_ns) continue;
    const timespec pause{left / 1'000'000'000, left % 1'000'000'000};
    nanosleep(&pause, nullptr);
  }
}

void Worker::post(uint64_t address, uint32_t rkey) {
  const uint64_t slot = posted_ % depth_;
  results_[slot] = ~uint64_t{0};
  ibv_sge sge{reinterpret_cast<uintptr_t>(&results_[slot]), sizeof(uint64_t), mr_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = posted_;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.atomic.rkey = rkey;
  if (is_swap(posted_)) {
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.remote_addr = address + offsetof(Counters, swaps);
    wr.wr.atomic.compare_add = compared_[slot] = expected_++;  // if this one meets what it expects
    wr.wr.atomic.swap = wr.wr.atomic.compare_add + 1;
  } else {
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = address + offsetof(Counters, adds);
    wr.wr.atomic.compare_add = 1;
  }
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qp_.get(), &wr, &bad); error != 0) {
    fail(std::string("ibv_post_send: ") + std::strerror(error));
    return;
  }
  ++posted_;
}

void Worker::take_completions(bool wait) {
  if (wait && channel_) wait_for_event();
  ibv_wc wc[32];
  const int count = ibv_poll_cq(cq_.get(), 32, wc);
  if (count < 0) fail("ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) take(wc[i]);
}

// Returns when something may be in the CQ.
void Worker::wait_for_event() {
  if (const int error = ibv_req_notify_cq(cq_.get(), 0); error != 0) {
    fail(std::string("ibv_req_notify_cq: ") + std::strerror(error));
    return;
  }
  const uint64_t before = completed_;
  take_completions(false);  // what came before the CQ was armed brings no event
  if (completed_ != before || !error_.empty()) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_.get(), &cq, &context) != 0) {
    fail("ibv_get_cq_event: " + reason());
  } else {
    ibv_ack_cq_events(cq, 1);
  }
}

void Worker::take(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    fail(std::string("an atomic completed with ") + ibv_wc_status_str(wc.status));
    return;
  }
  if (wc.wr_id != completed_) fail("completions came out of order");
  const uint64_t slot = completed_ % depth_, value = results_[slot];
  if (!is_swap(completed_)) {
    added_.push_back(value);
  } else if (value == compared_[slot]) {
    swapped_.push_back(value);
  } else {
    expected_ = value;
  }
  ++completed_;
}

void Worker::fail(const std::string& text) {
  if (error_.empty()) error_ = text;
}

}  // namespace atomic_check
