#include "transport/ud/location_table.h"

#include <algorithm>

#include "port/slot.h"

namespace ferry::transport {

DatagramPlace place_of_name(const DatagramName& name) {
  return {{name.gid, port::udp_port_of_qpn(name.qpn)}, name.qpn};
}

LocationTable::Found LocationTable::find(const DatagramName& name, Time now) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {.place = place_of_name(name)};
  Entry& entry = found->second;
  entry.used = now;
  return {entry.place, entry.peer_class, now - entry.confirmed > kConfirmed};
}

std::uint32_t LocationTable::epoch_of(const DatagramName& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? 0 : found->second.epoch;
}

LocationTable::Entry& LocationTable::insert(const DatagramName& name, Time now) {
  if (entries_.size() >= kCapacity && !entries_.contains(name)) {
    std::erase_if(entries_, [now](const auto& e) { return now - e.second.used > kUnused; });
    if (entries_.size() >= kCapacity) {
      entries_.erase(std::min_element(
          entries_.begin(), entries_.end(),
          [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    }
  }
  const auto [entry, fresh] = entries_.try_emplace(name);
  if (fresh) entry->second.place = place_of_name(name);
  entry->second.used = entry->second.confirmed = now;
  return entry->second;
}

void LocationTable::learn(const DatagramName& name, const DatagramPlace& place, std::uint32_t epoch,
                          Time now) {
  if (epoch < epoch_of(name)) return;
  Entry& entry = insert(name, now);
  entry.place = place;
  entry.epoch = epoch;
  entry.peer_class = PeerClass::kFerry;
}

void LocationTable::relocate(const port::Endpoint& name, const port::Endpoint& location,
                             std::uint32_t epoch, Time now) {
  for (auto& [known, entry] : entries_) {
    if (known.gid != name.address || port::udp_port_of_qpn(known.qpn) != name.udp_port) continue;
    if (entry.epoch > epoch) continue;
    entry.place = {location, port::make_qpn(port::slot_of_udp_port(location.udp_port),
                                            port::index_of(known.qpn))};
    entry.peer_class = PeerClass::kFerry;
    entry.confirmed = now;
  }
}

void LocationTable::unanswered(const DatagramName& name, Time now) {
  Entry& entry = insert(name, now);
  entry.place = place_of_name(name);
  entry.epoch = 0;
  if (entry.peer_class != PeerClass::kFerry) entry.peer_class = PeerClass::kUnmodified;
}

std::size_t LocationTable::slot_of(const DatagramName& name) {
  std::size_t hash = name.qpn;
  for (const auto byte : name.gid.bytes) hash = hash * 31 + std::to_integer<std::size_t>(byte);
  return hash % kSent;
}

void LocationTable::sends(const DatagramName& name, const port::Endpoint& to) {
  if (sent_.empty()) sent_.resize(kSent);
  Sent& sent = sent_[slot_of(name)];
  if (sent.name != name || sent.to != to) sent = {name, to};
}

bool LocationTable::has_sent(const DatagramName& name, const port::Endpoint& to) const {
  if (sent_.empty()) return false;
  const Sent& sent = sent_[slot_of(name)];
  return sent.name == name && sent.to == to;
}

}  // namespace ferry::transport
