#include "verbs/kernel/rdma_cm_devices.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/gids.h"
#include "port/slot.h"
#include "port/udp_socket.h"
#include "verbs/chosen_devices.h"
#include "verbs/devices.h"
#include "verbs/kernel/fork.h"
#include "verbs/neighbour.h"
#include "verbs/process.h"

namespace ferry::verbs {
namespace {

// Runs `visit` on the open contexts of the device, one after the other, until it gives true; false: it gave true for
// none. No context ends meanwhile.
template <typename Visit>
bool with_context(const rdmacm::Device& device, Visit visit) {
  Process* p = process_if_any();
  if (!p) return false;
  std::lock_guard lock(p->mutex);
  for (Context* context : p->contexts) {
    if (context->rnic->name() == device.name && visit(*context->device)) return true;
  }
  return false;
}

}  // namespace

std::vector<rdmacm::Devices::Listed> RdmaCmDevices::list() {
  std::vector<Listed> result;
  std::lock_guard lock(mutex_);
  for (const auto& rnic : chosen_rnics()) {
    Listed listed;
    listed.device.name = rnic->name();
    listed.device.netdev = rnic->netdev();
    listed.device.guid = guids_.emplace(rnic->name(), rnic->guid()).first->second;
    for (const ibv_gid& gid : rnic->addresses())
      listed.addresses.push_back(device::address_of(gid));
    result.push_back(std::move(listed));
  }
  return result;
}

std::uint8_t RdmaCmDevices::gid_index(const rdmacm::Device& device, const port::Address& address) {
  std::uint8_t result = 0;
  with_context(device, [&](device::MovableContext& context) {
    ibv_port_attr port{};
    if (context.query_port(1, &port) != 0) return false;
    bool same_family = false;
    for (int i = port.gid_tbl_len - 1; i >= 0; --i) {
      ibv_gid_entry entry{};
      if (context.query_gid(1, static_cast<unsigned>(i), &entry) != 0) continue;
      const port::Address gid = device::address_of(entry.gid);
      if (gid == address) {
        result = static_cast<std::uint8_t>(i);
        return true;
      }
      if (gid.is_ipv4() == address.is_ipv4()) {
        result = static_cast<std::uint8_t>(i);
        same_family = true;
      }
    }
    return same_family;
  });
  return result;
}

std::uint8_t RdmaCmDevices::active_mtu(const rdmacm::Device& device) {
  ibv_port_attr port{};
  port.active_mtu = IBV_MTU_1024;
  with_context(device,
               [&](device::MovableContext& context) { return context.query_port(1, &port) == 0; });
  return static_cast<std::uint8_t>(port.active_mtu);
}

bool RdmaCmDevices::find_qp(const rdmacm::Device& device, std::uint32_t qpn, QpPlace* out) {
  return with_context(device, [&](device::MovableContext& context) {
    std::vector<device::QpStatus> qps;
    context.status(&qps);
    for (const device::QpStatus& qp : qps) {
      if (qp.qpn != qpn) continue;
      *out = {qp.wire_qpn, qp.peer.address};
      return true;
    }
    return false;
  });
}

void RdmaCmDevices::peer_was_told(const rdmacm::Device& device, std::uint32_t qpn,
                                  const Retries& retries) {
  with_context(device, [&](device::MovableContext& context) {
    return context.set_peer_retries(
        qpn, {retries.ack_timeout, retries.retry_count, retries.rnr_retry, 1});
  });
}

int RdmaCmDevices::route(const port::Address& from, const port::Address& to, std::uint32_t scope,
                         port::Address* source) {
  const int family = to.is_ipv4() ? AF_INET : AF_INET6;
  const int socket = ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  port::SocketAddress address{};
  socklen_t length = port::to_socket_address({from, 0}, scope, &address);
  int error = ::bind(socket, &address.any, length) == 0 ? 0 : errno;
  if (!error) {
    length = port::to_socket_address({to, port::kRoceUdpPort}, scope, &address);
    error = ::connect(socket, &address.any, length) == 0 ? 0 : errno;
  }
  length = sizeof address;
  if (!error && ::getsockname(socket, &address.any, &length) != 0) error = errno;
  if (!error) *source = port::from_socket_address(address).address;
  ::close(socket);
  return error;
}

bool RdmaCmDevices::next_hop_is_known(const port::Address& to, bool ask) {
  return verbs::next_hop_is_known(device::gid_of(to), ask);
}

std::uint64_t RdmaCmDevices::random() {
  std::uint64_t value = 0;
  while (::getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

}  // namespace ferry::verbs
