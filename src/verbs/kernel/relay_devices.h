#pragma once

#include "relay/devices.h"

namespace ferry::verbs {

// The program's devices of the kernel, for the relay.
class RelayDevices final : public relay::Devices {
 public:
  void rename_device(__be64* guid, std::uint32_t* index) override;
  void rename_path(__be64 guid, ib_uverbs_ah_attr* path) override;
  relay::Connections connections() override;
  void tell_peer(__be64 guid, const relay::Ends& ends, device::CmNews news) override;
};

}  // namespace ferry::verbs
