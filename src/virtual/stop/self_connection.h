#pragma once

#include <cstdint>
#include <functional>

#include "device/objects.h"

namespace ferry::virt {

// A QP of Ferry's that is connected with itself, or an XRC initiator and a target that are connected with each
// other, with a CQ of its own: a stop has requests of its own carried out by it. Destroys all with the object.
class SelfConnection {
 public:
  explicit SelfConnection(device::Context& device) : device_(device) {}
  ~SelfConnection();
  SelfConnection(const SelfConnection&) = delete;
  SelfConnection& operator=(const SelfConnection&) = delete;

  // Makes the QP, which takes this number of send requests. `srq`: where it receives from; null: it receives
  // nothing. 0 or errno; EADDRNOTAVAIL: no port of the device is active.
  int open(device::Pd& pd, device::Srq* srq, std::uint32_t requests);
  // The same with an initiator and a target of this domain. Completions of what the target receives come to the
  // CQ of the SRQ that a request names. `is_taken`: whether the target may not have this QPN.
  int open_xrc(device::Pd& pd, device::Xrcd& xrcd, std::uint32_t requests,
               const std::function<bool(std::uint32_t)>& is_taken);
  // The QP that sends.
  device::Qp& qp() { return *qp_; }
  device::Qp& target() { return *target_; }
  device::Cq& cq() { return *cq_; }

 private:
  int create_cq(std::uint32_t entries);
  int create_target(device::Xrcd& xrcd, const std::function<bool(std::uint32_t)>& is_taken);
  int connect();
  // Connects one of the QPs with the other one, or with itself.
  int connect(device::Qp& qp, const device::Qp& peer, ibv_qp_type type, const ibv_gid_entry& gid);
  // Finds a GID of an active port, with the number of that port. False: there is none.
  bool find_gid(ibv_gid_entry* gid);

  device::Context& device_;
  device::Cq* cq_ = nullptr;
  device::Qp* qp_ = nullptr;
  device::Qp* target_ = nullptr;  // null: there is none
};

}  // namespace ferry::virt
