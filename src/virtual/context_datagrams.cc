#include <algorithm>
#include <cerrno>
#include <set>

#include "device/gids.h"
#include "virtual/context.h"
#include "virtual/messages/needs.h"

// The UD QPs of a context and its AHs, when programs move (Datagrams).
namespace ferry::virt {

// --- Objects

void Context::add_ud(Qp& qp) {
  datagrams_.add(qp);
  if (qp.init().srq == nullptr) static_cast<Cq*>(qp.init().recv_cq)->look_at(datagrams_);
  if (!datagrams_.are_used()) return;
  name_own_datagrams();
  qp.readdress();
}

void Context::remove_ud(Qp& qp) {
  datagrams_.remove(qp);
  if (device::Ah* path = qp.set_path_to_itself(nullptr, 0)) inner_->destroy(path);
  if (datagrams_.are_used()) name_own_datagrams();
}

bool Context::is_taken(const device::Object& made) const {
  if (const auto* ah = dynamic_cast<const device::Ah*>(&made))
    return datagrams_.has_ah(ah->handle());
  const auto* qp = dynamic_cast<const device::Qp*>(&made);
  if (qp == nullptr) return false;
  const auto means_another = [&](const ibv_gid& gid) {
    return datagrams_.has({device::address_of(gid), qp->qpn()});
  };
  if (gids_.are_learned()) {
    const auto pairs = gids_.pairs();
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const Gids::Pair& pair) { return means_another(pair.known); });
  }
  const auto gids = device::gids_of(*inner_);
  return std::any_of(gids.begin(), gids.end(),
                     [&](const ibv_gid_entry& entry) { return means_another(entry.gid); });
}

void Context::add_ways(Ah& ah) {
  for (const port::Address& place : datagrams_.places_of(ah.destination())) {
    if (ah.has_way_to(place)) continue;
    ibv_ah_attr path = ah.attributes;
    path.grh.dgid = device::gid_of(place);
    device::Ah* made = nullptr;
    if (gids_.are_learned() && !gids_.rename_source(&path)) continue;
    if (inner_->create_ah(behind(ah.pd), path, &made) == 0) datagrams_.add_way(ah, place, *made);
  }
}

int Context::destroy_ah(Ah& ah) {
  device::Object* const object = &ah;
  std::unique_ptr<device::Object> owner;
  {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(object);
    if (found == objects_.end()) return EINVAL;
    if (const int error = inner_->destroy(ah.inner)) return error;
    owner = std::move(found->second);
    objects_.erase(found);
  }
  datagrams_.remove(ah);
  for (device::Ah* way : datagrams_.take_ways(ah)) inner_->destroy(way);
  return 0;
}

// --- A move

int Context::make_paths_to_themselves() {
  const std::vector<Gids::Pair> pairs = gids_.pairs();
  for (Qp* qp : all<Qp>()) {
    if (!qp->wants_path_to_itself()) continue;
    const std::uint8_t port = qp->attributes().port_num;
    const auto own = std::find_if(pairs.begin(), pairs.end(),
                                  [&](const Gids::Pair& pair) { return pair.port == port; });
    if (own == pairs.end()) return EADDRNOTAVAIL;
    ibv_ah_attr path{};
    path.port_num = port;
    path.is_global = 1;
    path.grh.sgid_index = static_cast<std::uint8_t>(own->real_index);
    path.grh.dgid = own->real;
    path.grh.hop_limit = 1;
    device::Ah* made = nullptr;
    if (const int error = inner_->create_ah(behind(qp->init().pd), path, &made)) return error;
    if (device::Ah* old = qp->set_path_to_itself(made, port)) inner_->destroy(old);
  }
  return 0;
}

device::DatagramQps Context::moved_datagram_qps() {
  device::DatagramQps qps;
  if (numbers_ == nullptr) return qps;
  bool have_moved = false;
  for_each<Qp>([&](const Qp& qp) {
    if (!qp.is_ud()) return;
    qps.qpns.push_back({qp.qpn(), numbers_->qpns[qp.qpn()]});
    have_moved |= qps.qpns.back().known != qps.qpns.back().real;
  });
  for (const Gids::Pair& pair : gids_.pairs()) {
    qps.gids.push_back({device::address_of(pair.known), device::address_of(pair.real)});
    have_moved |= qps.gids.back().known != qps.gids.back().real;
  }
  return have_moved && !qps.qpns.empty() ? qps : device::DatagramQps{};
}

std::vector<port::Address> Context::datagram_destinations() {
  std::set<port::Address> destinations;
  for_each<Ah>([&](const Ah& ah) {
    if (ah.attributes.is_global != 0 && !ah.destination().is_multicast())
      destinations.insert(ah.destination());
  });
  return {destinations.begin(), destinations.end()};
}

void Context::name_own_datagrams() {
  datagrams_.set_own(moved_datagram_qps());
  moves_.has_letters();
}

int Context::query_source(const ibv_ah_attr& path, ibv_gid_entry* out) {
  return gids_.are_learned() ? gids_.query(path.port_num, path.grh.sgid_index, out)
                             : inner_->query_gid(path.port_num, path.grh.sgid_index, out);
}

void Context::need_paths(Needs* needs) {
  for_each<Ah>([&](const Ah& ah) {
    ibv_gid_entry source{};
    if (ah.attributes.is_global != 0 && query_source(ah.attributes, &source) == 0)
      needs->need_gid(source);
  });
  for_each<Qp>([&](const Qp& qp) {
    const std::uint8_t port = qp.attributes().port_num;
    ibv_port_attr attributes{};
    if (qp.is_ud() && port != 0 && inner_ != nullptr && inner_->query_port(port, &attributes) == 0)
      needs->mtu = std::max(needs->mtu, attributes.active_mtu);
  });
}

// --- Other programs

void Context::moved(const device::MovedNames& names) {
  {
    std::lock_guard lock(moved_mutex_);
    moved_gids_ = {names.gids.begin(), names.gids.end()};
  }
  // In a stop the device's objects are made with these names, as soon as there is one.
  const bool were_used = datagrams_.are_used();
  datagrams_.set_others(names.datagram_qps);
  if (!datagrams_.are_used() || inner_ == nullptr) return;
  for_each<Ah>([&](Ah& ah) { add_ways(ah); });
  if (were_used) return;
  std::lock_guard lock(talks_mutex_);  // no QP goes
  for (Qp* qp : all<Qp>()) {
    if (qp->is_ud()) qp->readdress();
  }
}

}  // namespace ferry::virt
