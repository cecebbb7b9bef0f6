#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <shared_mutex>
#include <string>
#include <vector>

#include "device/objects.h"

namespace ferry::virt {

bool is_link_local(const ibv_gid& gid);
// Whether one can stand for the other: of the same port, type and family, link-local or not.
bool is_of_kind(const ibv_gid_entry& a, const ibv_gid_entry& b);
// "of RoCEv2 for IPv4 addresses"
std::string kind_of(const ibv_gid_entry& entry);

// The GIDs that the application knows, and which of the device behind stand for them. Any thread may
// call any function.
class Gids {
 public:
  // Before the first move: those of the device are the ones that the application knows.
  void learn(device::Context& device);
  // After each: finds for each GID the same one of the device, or else one of its kind (family,
  // type, link-local or not).
  void match(device::Context& device);

  // What the application sees. ENODATA: an empty entry; EINVAL: there is none.
  int query(std::uint8_t port, unsigned index, ibv_gid_entry* out) const;
  // All that the application sees.
  std::vector<ibv_gid_entry> known() const;
  // The path of the application as one of the device. False: its source has no GID here.
  bool rename(ibv_ah_attr* path) const;
  // The same for its source alone.
  bool rename_source(ibv_ah_attr* path) const;
  // The known GIDs that have one of the device, without repetition, and that one's entry.
  struct Pair {
    ibv_gid known{}, real{};
    std::uint32_t port = 0, real_index = 0;
  };
  std::vector<Pair> pairs() const;

  bool are_learned() const {
    std::shared_lock lock(mutex_);
    return !entries_.empty();
  }
  // Whether it is one of the application's own.
  bool has(const ibv_gid& gid) const;
  // The device's own for one that the application knows.
  ibv_gid real_of(const ibv_gid& gid) const;
  // What the application knows as the source of a path. False: there is none.
  bool source_of(const ibv_ah_attr& path, ibv_gid* out) const;

 private:
  struct Entry {
    ibv_gid_entry known{};
    ibv_gid real{};
    std::uint32_t real_index = 0;
    bool is_here = true;
  };

  mutable std::shared_mutex mutex_;  // guards entries_
  std::vector<Entry> entries_;
};

}  // namespace ferry::virt
