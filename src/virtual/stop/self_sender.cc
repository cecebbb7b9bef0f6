#include "virtual/stop/self_sender.h"

#include <algorithm>
#include <cerrno>
#include <thread>

namespace ferry::virt {
namespace {

constexpr std::uint32_t kBatch = 32;  // messages under way
constexpr std::chrono::microseconds kBetweenPolls{20};

}  // namespace

int SelfSender::empty(device::Context& device, device::Pd& pd, device::Srq& srq, Deadline deadline,
                      std::uint32_t* count) {
  SelfSender sender(device);
  sender.batch_ = kBatch;
  *count = 0;
  if (const int error = sender.connection_.open(pd, &srq, kBatch)) return error;
  const int error = sender.send_all(deadline);
  *count = sender.received_;
  return error;
}

int SelfSender::empty_xrc(device::Context& device, device::Pd& pd, const XrcReceiver& receiver,
                          Deadline deadline) {
  SelfSender sender(device);
  sender.receiver_ = &receiver;
  sender.batch_ = std::clamp(receiver.room, 1u, kBatch);
  if (const int error = sender.connection_.open_xrc(pd, receiver.xrcd, sender.batch_)) return error;
  receiver.expect(sender.connection_.target().qpn());
  return sender.send_all(deadline);
}

int SelfSender::fill() {
  for (; posted_ - sent_ < batch_; ++posted_) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    if (receiver_ != nullptr) request.qp_type.xrc.remote_srqn = receiver_->srqn;
    ibv_send_wr* bad = nullptr;
    if (const int error = connection_.qp().post_send(&request, &bad)) return error;
  }
  return 0;
}

bool SelfSender::poll(ibv_wc* completion) {
  if (connection_.cq().poll(1, completion) <= 0) return false;
  if (completion->status == IBV_WC_SUCCESS)
    ++((completion->opcode & IBV_WC_RECV) != 0 ? received_ : sent_);
  return true;
}

int SelfSender::send_all(Deadline deadline) {
  for (;;) {
    received();  // takes what an XRC SRQ's CQ has, so that there is room for what is posted next
    if (const int error = fill()) return error;
    ibv_wc completion{};
    if (!poll(&completion)) {
      if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
      std::this_thread::sleep_for(kBetweenPolls);
    } else if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR) {
      break;
    } else if (completion.status != IBV_WC_SUCCESS) {
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
