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

  explicit SelfSender(device::Context& device) : connection_(device) {}

  // Makes what empty() needs. 0 or errno.
  int open(device::Pd& pd, device::Srq& srq);
  // The same for an XRC SRQ, whose CQ has room for `room` completions, and gets those of the receives: they have
  // the QPN target(). `pd`: a PD for what sends. `is_taken`: whether the target may not have this QPN.
  int open_xrc(device::Pd& pd, device::Xrcd& xrcd, const device::Srq& srq, std::uint32_t room,
               const std::function<bool(std::uint32_t)>& is_taken);
  std::uint32_t target() { return connection_.target().qpn(); }

  // Takes all receives out of the SRQ; *count gets their number. Meanwhile nobody else posts to the SRQ
  // or receives from it. 0 or errno; ETIMEDOUT: the deadline has passed.
  int empty(Deadline deadline, std::uint32_t* count);
  // The same for an XRC SRQ; received() takes completions from its CQ, and gives how many have come.
  int empty(Deadline deadline, const std::function<std::uint32_t()>& received);

 private:
  // Posts messages. 0 or errno.
  int fill(std::uint32_t received);
  // Polls once: > 0: a completion has come; 0: none has; < 0: the CQ has failed.
  int poll(ibv_wc* completion);

  SelfConnection connection_;
  std::uint32_t srqn_ = 0;   // of an XRC SRQ
  std::uint32_t batch_ = 0;  // messages under way
  std::uint32_t posted_ = 0, sent_ = 0;
  std::uint32_t received_ = 0;  // whose completions came to the connection's CQ
};

}  // namespace ferry::virt
