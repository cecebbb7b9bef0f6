#include "device/gids.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ferry::device {

std::vector<ibv_gid_entry> Context::gids() {
  std::vector<ibv_gid_entry> all;
  ibv_device_attr_ex attributes{};
  if (query_device(&attributes) != 0) return all;
  for (unsigned port = 1; port <= attributes.phys_port_cnt_ex; ++port) {
    ibv_port_attr of_port{};
    if (query_port(static_cast<std::uint8_t>(port), &of_port) != 0) continue;
    for (int index = 0; index < of_port.gid_tbl_len; ++index) {
      ibv_gid_entry entry{};
      if (query_gid(static_cast<std::uint8_t>(port), static_cast<unsigned>(index), &entry) == 0)
        all.push_back(entry);
    }
  }
  return all;
}

port::Address address_of(const ibv_gid& gid) {
  port::Address address;
  std::memcpy(address.bytes.data(), gid.raw, sizeof gid.raw);
  return address;
}

ibv_gid gid_of(const port::Address& address) {
  ibv_gid gid{};
  std::memcpy(gid.raw, address.bytes.data(), sizeof gid.raw);
  return gid;
}

std::uint8_t name_gid(const std::vector<MovableContext*>& contexts, std::uint8_t port,
                      std::uint8_t index) {
  const auto all_can = [&](std::uint8_t at) {
    return std::all_of(contexts.begin(), contexts.end(), [&](MovableContext* context) {
      return context->can_name_gid(port, index, at);
    });
  };
  if (all_can(index)) {
    for (MovableContext* context : contexts) context->name_gid(port, index, index);
    return index;
  }
  for (unsigned candidate = 0; candidate <= UINT8_MAX; ++candidate) {
    const auto at = static_cast<std::uint8_t>(candidate);
    if (!all_can(at)) continue;
    for (MovableContext* context : contexts) context->name_gid(port, index, at);
    return at;
  }
  return index;
}

}  // namespace ferry::device
