#include <cerrno>
#include <cstring>

#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"

// What only UD QPs have: places, address handles, multicast.
namespace ferry::rnic {

bool QueuePair::serves(const Lane& lane) const {
  return is_datagram() ? transport_->state() >= transport::QpState::kRtr : lane_ == &lane;
}

// A UD QP has no single peer, so it uses the lanes of both families.
void QueuePair::set_all_lanes(bool use) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    Lane& lane = engine_.lanes()[i];
    const auto bit = static_cast<std::uint8_t>(1u << i);
    const bool used = (lanes_used_ & bit) != 0;
    if (used == use || (use && lane.port == nullptr)) continue;
    lanes_used_ ^= bit;
    if (use && lane.users == 0) engine_.thread_sleep().sockets_changed();
    use ? ++lane.users : --lane.users;
  }
}

bool QueuePair::place_towards(const port::Address& address, transport::DatagramSource* out) const {
  const std::size_t index = lane_of(address);
  const Lane& lane = engine_.lanes()[index];
  const port::Address* gid = engine_.lanes().gid_of(index);
  if (lane.port == nullptr || gid == nullptr) return false;
  out->gid = *gid;
  out->place = {lane.port->local(), port::make_qpn(lane.slot, port::index_of(wire_qpn_))};
  return true;
}

bool QueuePair::own_place(const port::Address& gid, std::uint32_t qpn,
                          transport::DatagramPlace* out) const {
  const std::size_t index = lane_of(gid);
  const port::Address* own = engine_.lanes().gid_of(index);
  const Lane& lane = engine_.lanes()[index];
  if (own == nullptr || *own != gid || lane.port == nullptr ||
      port::slot_of(qpn) != port::slot_of(init_.virtual_qpn)) {
    return false;
  }
  *out = {lane.port->local(), port::make_qpn(lane.slot, port::index_of(qpn))};
  return true;
}

int QueuePair::take_datagram(const ibv_send_wr& wr, transport::DatagramAddress* out) const {
  if (wr.wr.ud.ah == nullptr || wr.wr.ud.remote_qpn > 0xFFFFFF) return EINVAL;
  const AddressHandle* ah = engine_.objects().address_handle(wr.wr.ud.ah->handle);
  if (ah == nullptr || ah->pd() != init_.pd) return EINVAL;
  *out = ah->address();
  out->qpn = wr.wr.ud.remote_qpn;
  out->qkey = wr.wr.ud.remote_qkey;
  return 0;
}

void QueuePair::handle_multicast(const wire::Packet& packet, const port::Endpoint& from,
                                 const port::Address& group, transport::Time now) {
  transport::DatagramSource us;
  const bool own = place_towards(group, &us) && from == us.place.endpoint &&
                   packet.header.deth.source_qpn == us.place.wire_qpn;
  if (own && init_.block_multicast_loopback) return;
  static_cast<transport::Datagram&>(*transport_).handle_multicast(packet, from, group, now);
}

int QueuePair::attach_mcast(const ibv_gid& gid, std::uint16_t) {
  if (engine_.abandoned()) return ENODEV;
  port::Address group;
  std::memcpy(group.bytes.data(), gid.raw, sizeof gid.raw);
  if (!is_datagram() || !group.is_multicast()) return EINVAL;
  Engine::Lock lock(engine_);
  const Lane& lane = engine_.lanes()[lane_of(group)];
  if (engine_.lanes().gid_of(lane_of(group)) == nullptr) return EINVAL;
  port::Address local;
  if (lane.port != nullptr) local = lane.port->local().address;
  const int error =
      engine_.multicast().attach(this, group, lane.port != nullptr ? &local : nullptr);
  engine_.thread_sleep().sockets_changed();
  return error;
}

int QueuePair::detach_mcast(const ibv_gid& gid, std::uint16_t) {
  if (engine_.abandoned()) return ENODEV;
  port::Address group;
  std::memcpy(group.bytes.data(), gid.raw, sizeof gid.raw);
  Engine::Lock lock(engine_);
  const int error = engine_.multicast().detach(this, group);
  engine_.thread_sleep().sockets_changed();
  return error;
}

void QueuePair::save_datagram(wire::ByteWriter& out) const {
  out.put(std::uint32_t{attributes_.qkey});
  out.put(static_cast<std::uint8_t>(lanes_used_ != 0));
  const auto groups = engine_.multicast().groups_of(this);
  out.put(static_cast<std::uint32_t>(groups.size()));
  for (const port::Address& group : groups) out.append(group.bytes.data(), group.bytes.size());
}

// The groups get their sockets later, by Context::attach().
bool QueuePair::load_datagram(wire::ByteReader& in) {
  attributes_.qkey = in.get<std::uint32_t>();
  const auto used = in.get<std::uint8_t>();
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || used > 1 || count > MulticastGroups::kMaxGroups) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    port::Address group;
    in.read(group.bytes.data(), group.bytes.size());
    if (!in.ok() || !group.is_multicast() ||
        engine_.multicast().attach(this, group, nullptr) != 0) {
      return false;
    }
  }
  set_all_lanes(used == 1);
  return true;
}

}  // namespace ferry::rnic
