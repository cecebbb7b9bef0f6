#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>

#include "rdmacm/service.h"

// The commands of rdma_user_cm.h that make, bind and end IDs. Errors are those of the kernel's
// rdma_ucm and rdma_cm.
namespace ferry::rdmacm {
namespace {

constexpr int kMaxBacklog = 1024;
constexpr std::uint32_t kMaxHandle = 0xFFFF;  // the stock librdmacm indexes an array of these

// The command tells the size of a sockaddr that lies in a field of fixed size.
template <typename Storage>
std::optional<Address> address_in(const Storage& storage, std::size_t size) {
  return size <= sizeof storage ? parse_address(&storage, size) : std::nullopt;
}

}  // namespace

// --- IDs

Id& Service::make_id() {
  std::uint32_t handle = 1;
  for (const auto& [used, id] : ids_) {
    if (used != handle) break;
    ++handle;
  }
  Id& id = ids_[handle];
  id.handle = handle;
  id.psn = static_cast<std::uint32_t>(devices_.random()) & 0xFFFFFF;
  return id;
}

Id* Service::find(std::uint32_t handle, const Channel& channel) {
  const auto found = ids_.find(handle);
  return found != ids_.end() && found->second.channel.get() == &channel ? &found->second : nullptr;
}

Id* Service::find_by_comm(cm::CommId comm) {
  for (auto& [handle, id] : ids_) {
    if (id.comm == comm) return &id;
  }
  return nullptr;
}

bool Service::is_datagram(const Id& id) const {
  return id.qp_type == IBV_QPT_UD;
}

std::optional<Device> Service::device_of(const port::Address& address) {
  for (const auto& [device, addresses] : devices_.list()) {
    if (std::find(addresses.begin(), addresses.end(), address) != addresses.end()) return device;
  }
  return std::nullopt;
}

cm::ServiceId Service::service_of(const Id& id) const {
  return id.source.family == kAfIb ? id.source.ib_service_id
                                   : cm::service_id(id.port_space, id.source.port);
}

int Service::start_manager() {
  if (manager_) return 0;
  const std::uint16_t tag = sockets_.take_tag();
  if (tag == 0) return EMFILE;
  manager_ = std::make_unique<cm::Manager>(tag, [this] { return devices_.random(); });
  manager_->set_listener([this](cm::ServiceId service, const port::Address& to) {
    return listener_for(service, to) != nullptr;
  });
  return 0;
}

int Service::create_id(const rdma_ucm_create_id& c, const std::shared_ptr<Channel>& channel) {
  std::uint8_t qp_type = IBV_QPT_RC;
  switch (c.ps) {
    case RDMA_PS_TCP: break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: qp_type = IBV_QPT_UD; break;
    case RDMA_PS_IB: qp_type = c.qp_type; break;
    default: return EINVAL;
  }
  if (ids_.size() >= kMaxHandle) return ENOMEM;
  Id& id = make_id();
  id.uid = c.uid;
  id.channel = channel;
  id.port_space = c.ps;
  id.qp_type = qp_type;
  respond(c.response, rdma_ucm_create_id_resp{id.handle});
  return 0;
}

// Also destroys the IDs of requests to a listener that its program has not seen yet.
void Service::destroy(Id& id) {
  const std::uint32_t handle = id.handle;
  if (manager_ && id.comm != 0) {
    refresh(id);
    manager_->forget(id.comm, now());
  }
  name_was_closed_ |= sockets_.unbind(handle);
  resolving_.erase(handle);
  for (const auto& [group, unused] : id.groups) groups_.erase(group);
  const std::shared_ptr<Channel> channel = id.channel;
  const auto withdrawn = channel->withdraw([&](const QueuedEvent& e) { return e.id == handle; });
  ids_.erase(handle);
  for (const QueuedEvent& event : withdrawn) {
    if (const auto child = ids_.find(event.new_id); event.new_id != 0 && child != ids_.end()) {
      destroy(child->second);
    }
  }
}

int Service::destroy_id(const rdma_ucm_destroy_id& c, const Channel& channel) {
  Id* id = find(c.id, channel);
  if (id == nullptr) return ENOENT;
  respond(c.response, rdma_ucm_destroy_id_resp{id->events_reported});
  destroy(*id);
  return 0;
}

int Service::migrate(const rdma_ucm_migrate_id& c, const std::shared_ptr<Channel>& channel) {
  const std::shared_ptr<Channel> old = channel_of(static_cast<int>(c.fd));
  Id* id = old ? find(c.id, *old) : nullptr;
  if (id == nullptr) return ENOENT;
  respond(c.response, rdma_ucm_migrate_resp{id->events_reported});
  if (old == channel) return 0;
  for (const QueuedEvent& event :
       old->withdraw([&](const QueuedEvent& e) { return e.id == c.id; })) {
    channel->push(event);
  }
  id->channel = channel;
  return 0;
}

// --- Addresses

// Binds the port that the ID names; if it names none, a free ephemeral one.
int Service::reserve_port(Id& id) {
  if (const int error = start_manager(); error != 0) return error;
  const auto try_port = [&] {
    return sockets_.bind(id.handle,
                         {id.source.is_any(), id.source.ip, id.device.netdev, service_of(id)});
  };
  if (id.source.port != 0 || id.source.family == kAfIb) return try_port();
  constexpr unsigned kCount = kLastEphemeral - kFirstEphemeral + 1;
  const auto first = static_cast<unsigned>(devices_.random() % kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    id.source.port = static_cast<std::uint16_t>(kFirstEphemeral + (first + i) % kCount);
    const int error = try_port();
    if (error != EADDRINUSE) return error;
  }
  return EADDRNOTAVAIL;
}

// Takes a loopback address that no device has for any address, as the kernel does: programs that
// bind "localhost" mean every device (libfabric does).
Address Service::with_wildcard(const Address& given) {
  Address address = given;
  address.wildcard = address.is_loopback() && !device_of(address.ip);
  return address;
}

int Service::bind(Id& id, const Address& given) {
  if (id.state != Id::State::kIdle) return EINVAL;
  const Address address = with_wildcard(given);
  Device device;
  if (!address.is_any()) {
    if (address.family == kAfIb) return ENODEV;  // RoCE has no native InfiniBand addresses
    const auto found = device_of(address.ip);
    if (!found) return ENODEV;
    device = *found;
  }
  id.source = address;
  id.device = device;
  // The stock library binds AF_IB to find out whether it is known, and has no use for the port.
  const bool probe = address.family == kAfIb && address.port == 0;
  if (!id.reuse_address && !probe) {
    if (const int error = reserve_port(id); error != 0) {
      id.source = {};
      id.device = {};
      return error;
    }
  }
  id.state = Id::State::kBound;
  return 0;
}

int Service::listen(Id& id, std::uint32_t backlog) {
  if (id.state == Id::State::kIdle) {
    Address any;
    any.family = AF_INET;
    any.ip = any_address(AF_INET);
    if (const int error = bind(id, any); error != 0) return error;
  }
  if (id.state != Id::State::kBound) return EINVAL;
  if (id.reuse_address) {
    if (const int error = reserve_port(id); error != 0) return error;
  }
  const auto wanted = static_cast<int>(std::min<std::uint32_t>(backlog, kMaxBacklog));
  id.backlog = wanted > 0 ? wanted : kMaxBacklog;
  id.state = Id::State::kListening;
  return 0;
}

Id* Service::listener_for(cm::ServiceId service, const port::Address& to) {
  Id* wildcard = nullptr;
  for (auto& [handle, id] : ids_) {
    if (id.state != Id::State::kListening || service_of(id) != service) continue;
    if (id.source.is_any()) {
      const bool fits =
          id.source.family == AF_INET ? to.is_ipv4() : !(id.ipv6_only && to.is_ipv4());
      if (fits) wildcard = &id;
    } else if (sockets_.current(id.source.ip, id.device.netdev) == to) {
      return &id;
    }
  }
  return wildcard;
}

int Service::set_option(Id& id, const rdma_ucm_set_option& c) {
  const auto* value = reinterpret_cast<const std::uint8_t*>(c.optval);
  const bool early = id.state == Id::State::kIdle || id.state == Id::State::kBound;
  if (c.level != RDMA_OPTION_ID) return c.level == RDMA_OPTION_IB ? EINVAL : ENOSYS;
  int flag = 0;
  switch (c.optname) {
    case RDMA_OPTION_ID_TOS:
      if (c.optlen != sizeof *value) return EINVAL;
      id.traffic_class = *value;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (c.optlen != sizeof *value || (*value & 0xE0) != 0) return EINVAL;
      id.ack_timeout = *value;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      if (c.optlen != sizeof flag) return EINVAL;
      __builtin_memcpy(&flag, value, sizeof flag);
      if (!early) return EINVAL;
      (c.optname == RDMA_OPTION_ID_REUSEADDR ? id.reuse_address : id.ipv6_only) = flag != 0;
      return 0;
    default: return ENOSYS;
  }
}

// --- Dispatch

int Service::dispatch(std::uint32_t number, const std::shared_ptr<Channel>& channel,
                      std::span<const std::byte> body, std::size_t out_size) {
  // Runs a command on the ID that it names.
  const auto on_id = [&](std::uint32_t handle, auto run) {
    Id* id = find(handle, *channel);
    return id != nullptr ? run(*id) : ENOENT;
  };
  switch (number) {
    case RDMA_USER_CM_CMD_CREATE_ID: return create_id(read<rdma_ucm_create_id>(body), channel);
    case RDMA_USER_CM_CMD_DESTROY_ID: return destroy_id(read<rdma_ucm_destroy_id>(body), *channel);
    case RDMA_USER_CM_CMD_MIGRATE_ID: return migrate(read<rdma_ucm_migrate_id>(body), channel);
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      return leave_group(read<rdma_ucm_destroy_id>(body), *channel);
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto c = read<rdma_ucm_bind_ip>(body);
      const auto address = address_in(c.addr, sizeof c.addr);
      return on_id(c.id, [&](Id& id) { return address ? bind(id, *address) : EINVAL; });
    }
    case RDMA_USER_CM_CMD_BIND: {
      const auto c = read<rdma_ucm_bind>(body);
      const auto address = address_in(c.addr, c.addr_size);
      return on_id(c.id, [&](Id& id) { return address ? bind(id, *address) : EINVAL; });
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP: {
      const auto c = read<rdma_ucm_resolve_ip>(body);
      const auto to = address_in(c.dst_addr, sizeof c.dst_addr);
      return on_id(c.id, [&](Id& id) {
        return to ? resolve_address(id, address_in(c.src_addr, sizeof c.src_addr), *to,
                                    c.timeout_ms)
                  : EINVAL;
      });
    }
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
      const auto c = read<rdma_ucm_resolve_addr>(body);
      const auto from = address_in(c.src_addr, c.src_size);
      const auto to = address_in(c.dst_addr, c.dst_size);
      if (c.src_size != 0 && !from) return EINVAL;
      return on_id(
          c.id, [&](Id& id) { return to ? resolve_address(id, from, *to, c.timeout_ms) : EINVAL; });
    }
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return on_id(read<rdma_ucm_resolve_route>(body).id,
                   [&](Id& id) { return resolve_route(id); });
    case RDMA_USER_CM_CMD_QUERY_ROUTE: {
      const auto c = read<rdma_ucm_query>(body);
      return on_id(c.id, [&](Id& id) { return query_route(id, c.response, out_size); });
    }
    case RDMA_USER_CM_CMD_QUERY: {
      const auto c = read<rdma_ucm_query>(body);
      return on_id(c.id, [&](Id& id) { return query(id, c, out_size); });
    }
    case RDMA_USER_CM_CMD_CONNECT: {
      const auto c = read<rdma_ucm_connect>(body);
      return on_id(c.id, [&](Id& id) { return connect(id, c.conn_param); });
    }
    case RDMA_USER_CM_CMD_LISTEN: {
      const auto c = read<rdma_ucm_listen>(body);
      return on_id(c.id, [&](Id& id) { return listen(id, c.backlog); });
    }
    case RDMA_USER_CM_CMD_ACCEPT: {
      const auto c = read<rdma_ucm_accept>(body);
      return on_id(c.id, [&](Id& id) { return accept(id, c); });
    }
    case RDMA_USER_CM_CMD_REJECT: {
      const auto c = read<rdma_ucm_reject>(body);
      return on_id(c.id, [&](Id& id) { return reject(id, c); });
    }
    case RDMA_USER_CM_CMD_DISCONNECT:
      return on_id(read<rdma_ucm_disconnect>(body).id, [&](Id& id) { return disconnect(id); });
    case RDMA_USER_CM_CMD_INIT_QP_ATTR: {
      const auto c = read<rdma_ucm_init_qp_attr>(body);
      return on_id(c.id, [&](Id& id) { return init_qp_attributes(id, c); });
    }
    case RDMA_USER_CM_CMD_SET_OPTION: {
      const auto c = read<rdma_ucm_set_option>(body);
      return on_id(c.id, [&](Id& id) { return set_option(id, c); });
    }
    case RDMA_USER_CM_CMD_NOTIFY: {
      const auto c = read<rdma_ucm_notify>(body);
      return on_id(c.id, [&](Id& id) {
        // COMM_EST: data came before the RTU. Other events mean nothing to a CM.
        if (c.event != IBV_EVENT_COMM_EST) return 0;
        return manager_ && id.comm != 0 ? manager_->notify(id.comm) : EINVAL;
      });
    }
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST: {
      const auto c = read<rdma_ucm_join_ip_mcast>(body);
      const auto group = address_in(c.addr, sizeof c.addr);
      return on_id(c.id,
                   [&](Id& id) { return group ? join(id, c.response, c.uid, *group) : EINVAL; });
    }
    case RDMA_USER_CM_CMD_JOIN_MCAST: {
      const auto c = read<rdma_ucm_join_mcast>(body);
      const auto group = address_in(c.addr, c.addr_size);
      if (c.join_flags > RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return EINVAL;
      return on_id(c.id,
                   [&](Id& id) { return group ? join(id, c.response, c.uid, *group) : EINVAL; });
    }
    case RDMA_USER_CM_CMD_GET_OPTION: return ENOSYS;  // as the kernel
    default: return EINVAL;
  }
}

}  // namespace ferry::rdmacm
