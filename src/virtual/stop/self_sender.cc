#include "virtual/stop/self_sender.h"

#include <cerrno>
#include <thread>

namespace ferry::virt {
namespace {

constexpr std::uint32_t kBatch = 32;  // messages under way
constexpr std::chrono::microseconds kBetweenPolls{20};

}  // namespace

int SelfSender::empty(device::Context& device, device::Pd& pd, device::Srq& srq,
                      std::chrono::steady_clock::time_point deadline, std::uint32_t* count) {
  SelfSender sender(device);
  if (const int error = sender.connection_.open(pd, &srq, kBatch)) return error;
  return sender.send_all(deadline, count);
}

int SelfSender::send_all(std::chrono::steady_clock::time_point deadline, std::uint32_t* count) {
  std::uint32_t posted = 0, sent = 0;
  *count = 0;
  for (;;) {
    for (; posted - sent < kBatch; ++posted) {
      ibv_send_wr request{};
      request.opcode = IBV_WR_SEND;
      request.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      if (const int error = connection_.qp().post_send(&request, &bad)) return error;
    }
    ibv_wc completion{};
    const int taken = connection_.cq().poll(1, &completion);
    if (taken < 0) return EIO;
    if (taken == 0) {
      if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
      std::this_thread::sleep_for(kBetweenPolls);
    } else if (completion.status == IBV_WC_SUCCESS) {
      ++((completion.opcode & IBV_WC_RECV) != 0 ? *count : sent);
    } else if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR) {
      break;
    } else {
      return EIO;
    }
  }
  // A device may give the completion of a receive later than that of the message that took it.
  while (*count < sent) {
    ibv_wc completion{};
    if (connection_.cq().poll(1, &completion) > 0 && completion.status == IBV_WC_SUCCESS)
      *count += (completion.opcode & IBV_WC_RECV) != 0;
    if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
  }
  return 0;
}

}  // namespace ferry::virt
