#pragma once

#include <chrono>
#include <cstdint>

#include "device/objects.h"
#include "virtual/stop/self_connection.h"

namespace ferry::virt {

// A QP that is connected with itself and receives from an SRQ. A device does not tell how many
// receives wait in an SRQ, and QPs that are flushed leave them there; messages of no byte take them
// out, until one finds none (RNR NAK) and fails.
class SelfSender {
 public:
  // Takes all receives out of the SRQ; *count gets their number. Meanwhile nobody else posts to the SRQ
  // or receives from it. 0 or errno; ETIMEDOUT: the deadline has passed.
  static int empty(device::Context& device, device::Pd& pd, device::Srq& srq,
                   std::chrono::steady_clock::time_point deadline, std::uint32_t* count);

 private:
  explicit SelfSender(device::Context& device) : connection_(device) {}

  int send_all(std::chrono::steady_clock::time_point deadline, std::uint32_t* count);

  SelfConnection connection_;
};

}  // namespace ferry::virt
