#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "device/objects.h"
#include "virtual/stop/self_connection.h"

namespace ferry::virt {

// A QP that is connected with itself and receives from an SRQ. A device does not tell how many
// receives wait in an SRQ, and QPs that are flushed leave them there; messages of no byte take them
// out, until one finds none (RNR NAK) and fails.
class SelfSender {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Takes all receives out of the SRQ; *count gets their number. Meanwhile nobody else posts to the SRQ
  // or receives from it. 0 or errno; ETIMEDOUT: the deadline has passed.
  static int empty(device::Context& device, device::Pd& pd, device::Srq& srq, Deadline deadline,
                   std::uint32_t* count);

  // An XRC SRQ, whose CQ gets the completions of the receives.
  struct XrcReceiver {
    device::Xrcd& xrcd;
    std::uint32_t srqn = 0;
    std::uint32_t room = 0;  // completions for which the CQ has room
    // From now on completions of this QPN come to the CQ; the second function gives how many have come.
    std::function<void(std::uint32_t qpn)> expect;
    std::function<std::uint32_t()> taken;
  };
  // The same for an XRC SRQ; `pd`: a PD for what sends.
  static int empty_xrc(device::Context& device, device::Pd& pd, const XrcReceiver& receiver,
                       Deadline deadline);

 private:
  explicit SelfSender(device::Context& device) : connection_(device) {}

  int send_all(Deadline deadline);
  int fill();
  // Polls once. False: nothing was there.
  bool poll(ibv_wc* completion);
  std::uint32_t received() { return receiver_ != nullptr ? receiver_->taken() : received_; }

  SelfConnection connection_;
  const XrcReceiver* receiver_ = nullptr;  // null: the SRQ is no XRC SRQ
  std::uint32_t batch_ = 0;                // messages under way
  std::uint32_t posted_ = 0, sent_ = 0;
  std::uint32_t received_ = 0;  // without receiver_
};

}  // namespace ferry::virt
