#include "idle_qps.h"

#include <cerrno>
#include <cstring>
#include <random>

#include "connect.h"
#include "failure.h"

namespace stream_check {
namespace {

constexpr uint64_t kReceive = 1, kSend = 2;  // wr_id

}  // namespace

IdleQps::IdleQps(const Device& device, uint32_t first, uint32_t count)
    : first_(first), gid_index_(device.gid_index()), reads_initiated_(device.reads_initiated()) {
  cq_.reset(ibv_create_cq(device.context(), static_cast<int>(2 * count), nullptr, nullptr, 0));
  if (!cq_) throw Failure("cannot create a CQ for idle QPs: " + std::string(std::strerror(errno)));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  std::random_device random;
  for (uint32_t i = 0; i < count; ++i) {
    qps_.emplace_back(ibv_create_qp(device.pd(), &init));
    if (!qps_.back()) {
      throw Failure("cannot create QP " + std::to_string(first_ + i) + ": " + std::strerror(errno) +
                    "; use fewer --idle");
    }
    QpEndpoint endpoint;
    endpoint.qpn = qps_.back()->qp_num;
    endpoint.psn = random() & 0xffffff;
    endpoints_.push_back(endpoint);
  }
}

void IdleQps::connect(const Endpoint& local, const Endpoint& peer,
                      const std::vector<QpEndpoint>& theirs, uint32_t timeout) {
  Connection connection;
  connection.local = local;
  connection.peer = peer;
  connection.gid_index = gid_index_;
  connection.reads_initiated = reads_initiated_;
  connection.timeout = timeout;
  for (size_t i = 0; i < qps_.size(); ++i) {
    connection.number = first_ + static_cast<uint32_t>(i);
    connection.local_qp = endpoints_[i];
    connection.peer_qp = theirs[i];
    to_init(qps_[i].get(), connection.number);
    ibv_recv_wr wr{};
    wr.wr_id = kReceive;
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qps_[i].get(), &wr, &bad))
      throw Failure("cannot post a receive: " + std::string(std::strerror(error)));
    stream_check::connect(qps_[i].get(), connection);
  }
}

void IdleQps::send_last() {
  if (has_sent_) return;
  has_sent_ = true;
  for (const Qp& qp : qps_) {
    ibv_send_wr wr{};
    wr.wr_id = kSend;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(qp.get(), &wr, &bad))
      call_error_ = "ibv_post_send on an idle QP: " + std::string(std::strerror(error));
  }
}

std::string IdleQps::look() {
  std::string wrong = std::move(call_error_);
  call_error_.clear();
  ibv_wc wc{};
  while (ibv_poll_cq(cq_.get(), 1, &wc) > 0) {
    if (wc.status != IBV_WC_SUCCESS) {
      wrong = "idle QP " + std::to_string(wc.qp_num) + ": " + ibv_wc_status_str(wc.status);
    } else if (wc.wr_id == kSend) {
      ++sent_;
    } else {
      ++received_;
    }
  }
  return wrong;
}

}  // namespace stream_check
