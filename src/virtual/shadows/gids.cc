#include "virtual/shadows/gids.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "device/gids.h"

namespace ferry::virt {
namespace {

bool same(const ibv_gid& a, const ibv_gid& b) {
  return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

// A GID can only stand for another one of the same family.
enum class Family { kMappedIpv4, kLinkLocal, kGlobal };

Family family_of(const ibv_gid& gid) {
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0) return Family::kMappedIpv4;
  return is_link_local(gid) ? Family::kLinkLocal : Family::kGlobal;
}

}  // namespace

bool is_link_local(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_of_kind(const ibv_gid_entry& a, const ibv_gid_entry& b) {
  return a.port_num == b.port_num && a.gid_type == b.gid_type &&
         family_of(a.gid) == family_of(b.gid);
}

std::string kind_of(const ibv_gid_entry& entry) {
  std::string text = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? "of RoCEv2"
                     : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? "of RoCEv1"
                                                              : "of InfiniBand";
  switch (family_of(entry.gid)) {
    case Family::kMappedIpv4: return text + " for IPv4 addresses";
    case Family::kLinkLocal: return text + " that is link-local";
    case Family::kGlobal: return text + " for global IPv6 addresses";
  }
  return text;
}

void Gids::learn(device::Context& device) {
  std::vector<Entry> learned;
  for (const ibv_gid_entry& entry : device.gids())
    learned.push_back({entry, entry.gid, entry.gid_index, true});
  std::lock_guard lock(mutex_);
  if (entries_.empty()) entries_ = std::move(learned);
}

void Gids::match(device::Context& device) {
  const std::vector<ibv_gid_entry> here = device.gids();
  std::lock_guard lock(mutex_);
  ++places_;
  for (Entry& entry : entries_) {
    auto found = std::find_if(here.begin(), here.end(), [&](const ibv_gid_entry& candidate) {
      return is_of_kind(candidate, entry.known) && same(candidate.gid, entry.known.gid);
    });
    if (found == here.end()) {
      found = std::find_if(here.begin(), here.end(), [&](const ibv_gid_entry& candidate) {
        return is_of_kind(candidate, entry.known);
      });
    }
    entry.is_here = found != here.end();
    if (!entry.is_here) continue;
    entry.real = found->gid;
    entry.real_index = found->gid_index;
  }
}

int Gids::query(std::uint8_t port, unsigned index, ibv_gid_entry* out) const {
  std::shared_lock lock(mutex_);
  bool has_port = false;
  for (const Entry& entry : entries_) {
    if (entry.known.port_num != port) continue;
    has_port = true;
    if (entry.known.gid_index != index) continue;
    *out = entry.known;
    return 0;
  }
  return has_port ? ENODATA : EINVAL;
}

std::vector<ibv_gid_entry> Gids::known() const {
  std::vector<ibv_gid_entry> all;
  std::shared_lock lock(mutex_);
  for (const Entry& entry : entries_) all.push_back(entry.known);
  return all;
}

bool Gids::can_name(const ibv_gid_entry& here, std::uint8_t index) const {
  std::shared_lock lock(mutex_);
  return std::all_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.known.port_num != here.port_num || entry.known.gid_index != index ||
           (is_of_kind(entry.known, here) && same(entry.known.gid, here.gid));
  });
}

void Gids::name(const ibv_gid_entry& here, std::uint8_t index) {
  std::lock_guard lock(mutex_);
  const bool is_there = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.known.port_num == here.port_num && entry.known.gid_index == index;
  });
  if (is_there) return;
  Entry added{here, here.gid, here.gid_index, true, places_};
  added.known.gid_index = index;
  entries_.push_back(added);
}

std::optional<std::uint8_t> Gids::index_at(std::uint8_t port, std::uint32_t real_index) const {
  std::shared_lock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.is_here && entry.known.port_num == port && entry.real_index == real_index &&
        same(entry.known.gid, entry.real))
      return static_cast<std::uint8_t>(entry.known.gid_index);
  }
  return std::nullopt;
}

bool Gids::rename_source(ibv_ah_attr* path) const {
  if (path->is_global == 0) return true;
  std::shared_lock lock(mutex_);
  const auto source = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.known.port_num == path->port_num && entry.known.gid_index == path->grh.sgid_index;
  });
  if (source == entries_.end() || !source->is_here) return false;
  path->grh.sgid_index = static_cast<std::uint8_t>(source->real_index);
  return true;
}

std::vector<Gids::Pair> Gids::pairs() const {
  std::vector<Pair> pairs;
  std::shared_lock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (!entry.is_here) continue;
    const bool is_there = std::any_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
      return pair.port == entry.known.port_num && same(pair.known, entry.known.gid);
    });
    if (is_there) continue;
    pairs.push_back({entry.known.gid, entry.real, entry.known.port_num, entry.real_index});
  }
  return pairs;
}

ibv_gid Gids::real_of(const ibv_gid& gid) const {
  std::shared_lock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (same(entry.known.gid, gid)) return entry.real;
  }
  return gid;
}

bool Gids::source_of(const ibv_ah_attr& path, ibv_gid* out) const {
  ibv_gid_entry entry{};
  if (query(path.port_num, path.grh.sgid_index, &entry) != 0) return false;
  *out = entry.gid;
  return true;
}

bool Gids::is_own(const ibv_ah_attr& path) const {
  std::shared_lock lock(mutex_);
  const auto source = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.known.port_num == path.port_num && entry.known.gid_index == path.grh.sgid_index;
  });
  return source != entries_.end() &&
         std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
           return same(entry.known.gid, path.grh.dgid) && entry.place == source->place;
         });
}

}  // namespace ferry::virt
