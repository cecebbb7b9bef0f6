#include "device/gids.h"

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

}  // namespace ferry::device
