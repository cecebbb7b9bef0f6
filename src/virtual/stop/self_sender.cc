#include "virtual/stop/self_sender.h"

#include <algorithm>
#include <cerrno>
#include <thread>

namespace ferry::virt {
namespace {

constexpr std::uint32_t kBatch = 32;  // messages under way
constexpr std::chrono::microseconds kBetweenPolls{20};

}  // namespace

int SelfSender::open(device::Pd& pd, device::Srq& srq) {
  batch_ = kBatch;
  return connection_.open(pd, &srq, batch_);
}

int SelfSender::open_xrc(device::Pd& pd, device::Xrcd& xrcd, const device::Srq& srq,
                         std::uint32_t room, const std::function<bool(std::uint32_t)>& is_taken) {
  srqn_ = srq.number();
  batch_ = std::clamp(room, 1u, kBatch);
  return connection_.open_xrc(pd, xrcd, batch_, is_taken);
}

int SelfSender::fill(std::uint32_t received) {
  // A completion of a receive that has not come needs its place in the CQ still.
  for (; posted_ - std::min(sent_, received) < batch_; ++posted_) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.qp_type.xrc.remote_srqn = srqn_;
    ibv_send_wr* bad = nullptr;
    if (const int error = connection_.qp().post_send(&request, &bad)) return error;
  }
  return 0;
}

int SelfSender::poll(ibv_wc* completion) {
  const int taken = connection_.cq().poll(1, completion);
  if (taken > 0 && completion->status == IBV_WC_SUCCESS)
    ++((completion->opcode & IBV_WC_RECV) != 0 ? received_ : sent_);
  return taken;
}

int SelfSender::empty(Deadline deadline, std::uint32_t* count) {
  const int error = empty(deadline, [&] { return received_; });
  *count = received_;
  return error;
}

int SelfSender::empty(Deadline deadline, const std::function<std::uint32_t()>& received) {
  for (;;) {
    if (const int error = fill(received())) return error;
    ibv_wc completion{};
    const int taken = poll(&completion);
    if (taken == 0) {
      if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
      std::this_thread::sleep_for(kBetweenPolls);
    } else if (taken > 0 && completion.status == IBV_WC_RNR_RETRY_EXC_ERR) {
      break;
    } else if (taken < 0 || completion.status != IBV_WC_SUCCESS) {
      return EIO;
    }
  }
  // A device may give the completion of a receive later than that of the message that took it.
  while (received() < sent_) {
    ibv_wc completion{};
    poll(&completion);
    if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
  }
  return 0;
}

}  // namespace ferry::virt
