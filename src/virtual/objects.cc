#include "virtual/objects.h"

#include <cstring>

#include "port/slot.h"

namespace ferry::virt {
namespace {

port::Endpoint endpoint_of(const ibv_gid& gid) {
  port::Endpoint endpoint;
  std::memcpy(endpoint.address.bytes.data(), gid.raw, sizeof gid.raw);
  endpoint.udp_port = port::kRoceUdpPort;
  return endpoint;
}

}  // namespace

// An event of a CQ that the application does not know cannot be: it has not armed it.
int Channel::take(device::Cq** out) {
  device::Cq* raised = nullptr;
  if (const int error = inner->take(&raised)) return error;
  *out = shadow_of(*raised);
  return 0;
}

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
  if (const int error = inner->modify(attributes, mask)) return error;
  std::lock_guard lock(mutex_);
  if ((mask & IBV_QP_AV) != 0) path_ = attributes.ah_attr;
  if ((mask & IBV_QP_DEST_QPN) != 0) peer_qpn_ = attributes.dest_qp_num;
  if ((mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RESET) peer_qpn_ = 0;
  return 0;
}

int Qp::bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) {
  device::MwBind wanted = bind;
  if (bind.mr != nullptr) wanted.mr = static_cast<const Mr*>(bind.mr)->inner;
  return inner->bind_mw(behind(window), wanted, rkey);
}

device::QpStatus Qp::status(device::Context& device) const {
  device::QpStatus status;
  status.qpn = status.wire_qpn = inner->qpn();
  status.type = static_cast<std::uint8_t>(type_);
  status.state = static_cast<std::uint8_t>(inner->state());
  std::lock_guard lock(mutex_);
  status.peer_qpn = status.peer_wire_qpn = peer_qpn_;
  if (peer_qpn_ == 0 || path_.is_global == 0) return status;
  status.peer = endpoint_of(path_.grh.dgid);
  ibv_gid_entry local{};
  if (device.query_gid(path_.port_num, path_.grh.sgid_index, &local) == 0)
    status.local = endpoint_of(local.gid);
  return status;
}

}  // namespace ferry::virt
