#pragma once

#include <map>
#include <mutex>

#include "rdmacm/devices.h"

namespace ferry::verbs {

// The RNICs of this process, for rdma_cm.
class RdmaCmDevices final : public rdmacm::Devices {
 public:
  RdmaCmDevices() { list(); }  // notes the GUIDs before any move
  std::vector<Listed> list() override;
  std::uint8_t gid_index(const rdmacm::Device& device, const port::Address& address) override;
  std::uint8_t active_mtu(const rdmacm::Device& device) override;
  bool find_qp(const rdmacm::Device& device, std::uint32_t qpn, QpPlace* out) override;
  void peer_was_told(const rdmacm::Device& device, std::uint32_t qpn,
                     const Retries& retries) override;
  int route(const port::Address& from, const port::Address& to, std::uint32_t scope,
            port::Address* source) override;
  bool next_hop_is_known(const port::Address& to, bool ask) override;
  std::uint64_t random() override;

 private:
  std::mutex mutex_;
  // The GUIDs by device name, as the program was told first: a move changes the interface, not what
  // the program knows.
  std::map<std::string, std::uint64_t> guids_;
};

}  // namespace ferry::verbs
