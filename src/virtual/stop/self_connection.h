#pragma once

#include <cstdint>

#include "device/objects.h"

namespace ferry::virt {

// A QP of Ferry's that is connected with itself, with a CQ of its own: a stop has requests of its own carried
// out by it. Destroys both with the object.
class SelfConnection {
 public:
  explicit SelfConnection(device::Context& device) : device_(device) {}
  ~SelfConnection();
  SelfConnection(const SelfConnection&) = delete;
  SelfConnection& operator=(const SelfConnection&) = delete;

  // Makes the QP, which takes this number of send requests. `srq`: where it receives from; null: it receives
  // nothing. 0 or errno; EADDRNOTAVAIL: no port of the device is active.
  int open(device::Pd& pd, device::Srq* srq, std::uint32_t requests);
  device::Qp& qp() { return *qp_; }
  device::Cq& cq() { return *cq_; }

 private:
  int connect();
  // Finds a GID of an active port, with the number of that port. False: there is none.
  bool find_gid(ibv_gid_entry* gid);

  device::Context& device_;
  device::Cq* cq_ = nullptr;
  device::Qp* qp_ = nullptr;
};

}  // namespace ferry::virt
