#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "port/endpoint.h"
#include "port/port.h"

namespace ferry::rnic {

// The socket of one address family. Where the RNIC was opened, its two lanes have the same slot;
// after a move each has its own.
struct Lane {
  std::unique_ptr<port::Port> port;
  std::uint32_t slot = 0;
  std::uint32_t users = 0;  // connections whose peer is of this family, and UD QPs

  // Whether its packets must be taken as they come. To slot 0 they come also for QP 1, and to be
  // passed on.
  bool listens() const { return port != nullptr && (users > 0 || slot == 0); }
};
inline constexpr std::size_t kLanes = 2;
inline std::size_t lane_of(const port::Address& address) {
  return address.is_ipv4() ? 0 : 1;
}

// The lanes of an RNIC, and its virtual GIDs. Used under the engine's lock.
class Lanes {
 public:
  Lane& operator[](std::size_t index) { return lanes_[index]; }
  const Lane& operator[](std::size_t index) const { return lanes_[index]; }
  Lane* begin() { return lanes_.data(); }
  Lane* end() { return lanes_.data() + kLanes; }
  const Lane* begin() const { return lanes_.data(); }
  const Lane* end() const { return lanes_.data() + kLanes; }
  std::size_t index_of(const Lane* lane) const { return static_cast<std::size_t>(lane - begin()); }

  void set_port(std::size_t index, std::unique_ptr<port::Port> port, std::uint32_t slot) {
    lanes_[index].port = std::move(port);
    lanes_[index].slot = slot;
  }

  // The virtual GIDs, by index: the addresses that the RNIC had when it was opened. Constant from
  // then on.
  void set_gids(std::vector<port::Address> gids) { gids_ = std::move(gids); }
  const std::vector<port::Address>& gids() const { return gids_; }
  // The virtual GID of a lane's family; null: the RNIC has none.
  const port::Address* gid_of(std::size_t index) const {
    for (const port::Address& gid : gids_) {
      if (lane_of(gid) == index) return &gid;
    }
    return nullptr;
  }

 private:
  std::array<Lane, kLanes> lanes_;
  std::vector<port::Address> gids_;
};

}  // namespace ferry::rnic
