#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <unordered_map>

#include "device/objects.h"
#include "rnic/memory/memory.h"
#include "transport/types.h"

namespace ferry::rnic {

// An address handle (clause 11.2.2). Its GIDs are virtual, so it stays valid when either side
// moves.
class AddressHandle final : public device::Ah {
 public:
  AddressHandle(std::uint32_t number, ProtectionDomain* domain, const ibv_ah_attr& attributes);
  std::uint32_t handle() const override { return number_; }

  ProtectionDomain* pd() const { return pd_; }
  const ibv_ah_attr& attributes() const { return attributes_; }
  // The part of its address that a datagram takes from its AH.
  const transport::DatagramAddress& address() const { return address_; }

 private:
  const std::uint32_t number_;
  ProtectionDomain* const pd_;
  const ibv_ah_attr attributes_;
  transport::DatagramAddress address_;
};

}  // namespace ferry::rnic
