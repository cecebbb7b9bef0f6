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
  if (qp.init().srq != nullptr) static_cast<Srq*>(qp.init().srq)->find_receives();
  datagrams_.add(qp);
  static_cast<Cq*>(qp.init().recv_cq)->look_at(datagrams_);
  if (!datagrams_.are_used()) return;
  name_own_datagrams();
  qp.redirect();
}

void Context::remove_ud(Qp& qp) {
  datagrams_.remove(qp);
  markers_.destroy_path(qp);
  if (datagrams_.are_used()) name_own_datagrams();
}

void Context::add_ways(Ah& ah) {
  for (const port::Address& place : datagrams_.places_of(ah.destination())) {
    if (ah.has_way_to(place)) continue;
    ibv_ah_attr path = ah.attributes;
    path.grh.dgid = device::gid_of(place);
    device::Ah* made = nullptr;
    if (device_.gids.are_learned() && !device_.gids.rename_source(&path)) continue;
    if (device_.context->create_ah(behind(ah.pd), path, &made) == 0)
      datagrams_.add_way(ah, place, *made);
  }
}

int Context::destroy_ah(Ah& ah) {
  std::unique_ptr<device::Object> owner;
  const auto end = [&] { return device_.context->destroy(ah.inner); };
  if (const int error = shadows_.take_if(&ah, &owner, end)) return error;
  datagrams_.remove(ah);
  for (device::Ah* way : datagrams_.take_ways(ah)) device_.context->destroy(way);
  return 0;
}

// --- A move

device::DatagramQps Context::moved_datagram_qps() {
  device::DatagramQps qps;
  if (device_.numbers == nullptr) return qps;
  bool have_moved = false;
  shadows_.for_each<Qp>([&](const Qp& qp) {
    if (!qp.is_ud()) return;
    qps.qpns.push_back({qp.qpn(), device_.numbers->qpns[qp.qpn()]});
    have_moved |= qps.qpns.back().known != qps.qpns.back().real;
  });
  for (const Gids::Pair& pair : device_.gids.pairs()) {
    qps.gids.push_back({device::address_of(pair.known), device::address_of(pair.real)});
    have_moved |= qps.gids.back().known != qps.gids.back().real;
  }
  return have_moved && !qps.qpns.empty() ? qps : device::DatagramQps{};
}

std::vector<port::Address> Context::datagram_destinations() {
  std::set<port::Address> destinations;
  shadows_.for_each<Ah>([&](const Ah& ah) {
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
  return device_.gids.are_learned()
             ? device_.gids.query(path.port_num, path.grh.sgid_index, out)
             : device_.context->query_gid(path.port_num, path.grh.sgid_index, out);
}

void Context::need_paths(Needs* needs) {
  shadows_.for_each<Ah>([&](const Ah& ah) {
    ibv_gid_entry source{};
    if (ah.attributes.is_global != 0 && query_source(ah.attributes, &source) == 0)
      needs->need_gid(source);
  });
  shadows_.for_each<Qp>([&](const Qp& qp) {
    const std::uint8_t port = qp.attributes().port_num;
    ibv_port_attr attributes{};
    if (qp.is_ud() && port != 0 && device_.context != nullptr &&
        device_.context->query_port(port, &attributes) == 0)
      needs->mtu = std::max(needs->mtu, attributes.active_mtu);
  });
}

// --- Other programs

void Context::moved(const device::MovedNames& names) {
  talks_.moved({names.gids.begin(), names.gids.end()});
  // In a stop, the objects are made with these names as soon as the context has a device again.
  const bool were_used = datagrams_.are_used();
  datagrams_.set_others(names.datagram_qps);
  if (!datagrams_.are_used() || device_.context == nullptr) return;
  shadows_.for_each<Ah>([&](Ah& ah) { add_ways(ah); });
  if (were_used) return;
  const auto talks = talks_.hold();
  for (Qp* qp : shadows_.all<Qp>()) {
    if (qp->is_ud()) qp->redirect();
  }
}

}  // namespace ferry::virt
