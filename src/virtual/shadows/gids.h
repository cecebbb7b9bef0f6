#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "device/objects.h"

namespace ferry::virt {

bool is_link_local(const ibv_gid& gid);
// Whether one entry can stand for the other: both have the same port, the same type and the same family
// (IPv4, IPv6 link-local, or other IPv6).
bool is_of_kind(const ibv_gid_entry& a, const ibv_gid_entry& b);
// Describes the type and family of an entry for people: "of RoCEv2 for IPv4 addresses".
std::string kind_of(const ibv_gid_entry& entry);

// The GIDs that the application knows, and the GIDs of the device behind that stand for them. Any thread
// may call any function.
class Gids {
 public:
  // Before the first move, and once: notes the GIDs of the device as those that the application knows.
  void learn(device::Context& device);
  // After each move: finds for each known GID the same GID of the device, or else the first one of its
  // kind (is_of_kind()).
  void match(device::Context& device);

  // Gives an entry of the GID table that the application sees. ENODATA: the entry is empty; EINVAL: the
  // port has no entries.
  int query(std::uint8_t port, unsigned index, ibv_gid_entry* out) const;
  // All GIDs that the application sees.
  std::vector<ibv_gid_entry> known() const;
  // Whether the application names the device's GID `here` by this index, or may do so because the index means no GID
  // yet. After name() it does.
  bool can_name(const ibv_gid_entry& here, std::uint8_t index) const;
  void name(const ibv_gid_entry& here, std::uint8_t index);
  // The index by which the application names the GID that was at this index of the device's table when the application
  // came to know it. std::nullopt: it does not know such a GID as itself.
  std::optional<std::uint8_t> index_at(std::uint8_t port, std::uint32_t real_index) const;
  // Makes the source of a path of the application one of the device. False: the device has no GID for it.
  bool rename_source(ibv_ah_attr* path) const;
  // The known GIDs for which the device has a GID, each once per port, with the device's GID and its index.
  struct Pair {
    ibv_gid known{}, real{};
    std::uint32_t port = 0, real_index = 0;
  };
  std::vector<Pair> pairs() const;

  bool are_learned() const {
    std::shared_lock lock(mutex_);
    return !entries_.empty();
  }
  // Whether the path leads from one of the GIDs that the application knows as its own to another one that it has come
  // to know in the same place. A GID from a place that it has left may be somebody else's.
  bool is_own(const ibv_ah_attr& path) const;
  // The device's GID for a GID that the application knows as its own; any other GID stays as it is.
  ibv_gid real_of(const ibv_gid& gid) const;
  // Gives the GID that the application knows as the source of a path. False: there is none.
  bool source_of(const ibv_ah_attr& path, ibv_gid* out) const;

 private:
  struct Entry {
    ibv_gid_entry known{};
    ibv_gid real{};
    std::uint32_t real_index = 0;
    bool is_here = true;
    std::uint32_t place = 0;  // places_ when the application came to know the GID
  };

  mutable std::shared_mutex mutex_;  // guards what follows
  std::vector<Entry> entries_;
  std::uint32_t places_ = 0;  // moves so far
};

}  // namespace ferry::virt
