#include <errno.h>
#include <netinet/in.h>

#include <algorithm>

#include "port/udp_socket.h"
#include "relay/relay.h"

// What a move does to the IDs of a program.
namespace ferry::relay {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};

const char* name_of(Id::State state) {
  switch (state) {
    case Id::State::kResolving:
    case Id::State::kResolved: return "an rdma_cm ID that has an address and is not connected yet";
    case Id::State::kRequested: return "an rdma_cm request that it has not answered";
    case Id::State::kConnecting:
    case Id::State::kAnswered: return "an rdma_cm connection that is being made";
    default: return nullptr;
  }
}

// Options of an ID begin with an int, or a byte, that is 0 if the option is off.
bool has_option(const Id& id, std::uint32_t name) {
  return std::any_of(id.options.begin(), id.options.end(), [&](const Id::Option& option) {
    return option.level == RDMA_OPTION_ID && option.name == name && !option.value.empty() &&
           option.value[0] != std::byte{};
  });
}

}  // namespace

// --- The stop

int Relay::stop(std::chrono::steady_clock::time_point deadline) {
  const auto now = std::chrono::steady_clock::now();
  const auto give_up = now + (deadline - now) / 2;  // the devices need the rest
  Lock lock(mutex_);
  for (;;) {
    heed_news();
    is_stopped_ = true;
    const bool is_quiet = changed_.wait_until(lock, give_up, [this] { return destroying_ == 0; });
    if (is_quiet) collect_events();
    if (is_quiet && half_made() == nullptr) break;
    is_stopped_ = false;
    changed_.notify_all();
    if (std::chrono::steady_clock::now() >= give_up) return ETIMEDOUT;
    changed_.wait_for(lock, kBetweenLooks);
  }
  const int error = keep_all();
  if (error != 0) {
    is_stopped_ = false;
    changed_.notify_all();
  }
  return error;
}

int Relay::keep_all() {
  const Connections connections = devices_.connections();
  if (obstacle(connections) != nullptr) return EOPNOTSUPP;  // since ferryd has asked for the status
  for (auto& [handle, id] : ids_) {
    if (!id.is_here) continue;
    if (const int error = keep_port(id)) return error;
    keep_answers(id, connections);
  }
  return 0;
}

// The program may have left the choice of the port to the kernel, and that of the address as well.
int Relay::keep_port(Id& id) {
  if (id.state != Id::State::kBound && id.state != Id::State::kListening) return 0;
  rdma_ucm_query_route_resp route{};
  rdma_ucm_query body{};
  body.response = reinterpret_cast<std::uint64_t>(&route);
  body.id = id.kernels;
  const auto query = own_command(RDMA_USER_CM_CMD_QUERY_ROUTE, body, sizeof route);
  if (const int error = id.channel->file->command(query)) return error;
  const auto family = route.src_addr.sin6_family;
  if (family != AF_INET && family != AF_INET6) return 0;  // AF_IB, which has no port
  if (id.bound.addr_size == 0) {
    id.bound.addr.ss_family = family;
    id.bound.addr_size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }
  // The port is at the same place in both families.
  auto* const address = reinterpret_cast<sockaddr_in6*>(&id.bound.addr);
  if (address->sin6_family == family) address->sin6_port = route.src_addr.sin6_port;
  return 0;
}

// The program gets the events later.
void Relay::collect_events() {
  reap();
  for (auto& [descriptor, channel] : channels_) {
    Event event;
    while (take_from_kernel(*channel, &event) == 0) keep(*channel, event);
  }
}

const char* Relay::half_made() const {
  for (const auto& [handle, id] : ids_) {
    if (const char* name = name_of(id.state)) return name;
  }
  return nullptr;
}

const char* Relay::obstacle(const Connections& connections) const {
  if (is_inherited_) return "rdma_cm channels that its parent has as well";
  for (const auto& [handle, id] : ids_) {
    if (id.groups > 0) return "a multicast group that it has joined by rdma_cm";
    const bool has_peer = id.is_here && id.state == Id::State::kConnected && !id.is_datagram();
    if (has_peer && !ends_of(id, connections))
      return "an rdma_cm connection whose QP is not among those that Ferry knows";
  }
  return nullptr;
}

void Relay::keep_answers(Id& id, const Connections& connections) {
  if (id.state < Id::State::kConnected) return;
  id.kept = std::make_shared<Answers>(*id.channel->file, devices_, id.kernels, id.device);
  id.ends = ends_of(id, connections);
}

void Relay::destroy_in(KernelFile& file, std::uint32_t kernels) {
  rdma_ucm_destroy_id_resp answer{};
  rdma_ucm_destroy_id body{};
  body.response = reinterpret_cast<std::uint64_t>(&answer);
  body.id = kernels;
  file.command(own_command(RDMA_USER_CM_CMD_DESTROY_ID, body, sizeof answer));
}

void Relay::detach(Id& id) {
  destroy_in(*id.channel->file, id.kernels);
  leave_kernel(id);
}

void Relay::park() {
  std::lock_guard lock(mutex_);
  collect_events();
  for (auto& [handle, id] : ids_) {
    if (!id.is_here) continue;
    const bool disconnects = id.state == Id::State::kDisconnecting;
    if (id.ends && (disconnects || id.state == Id::State::kConnected)) {
      devices_.tell_peer(id.device, *id.ends,
                         disconnects ? device::CmNews::kDisconnected : device::CmNews::kDetached);
    }
    // The kernel's events will not come any more.
    if (disconnects) raise(id, event::kDisconnected);
    if (id.awaits_last) raise(id, event::kTimewaitExit);
    leave_kernel(id);
  }
  for (auto& [descriptor, channel] : channels_) {
    channel->steady.unwatch();
    channel->file.reset();
  }
  is_parked_ = true;
}

// --- Afterwards

int Relay::make_anew(Id& id) {
  KernelFile& file = *id.channel->file;
  rdma_ucm_create_id_resp made{};
  rdma_ucm_create_id create{};
  create.uid = id.uid;
  create.response = reinterpret_cast<std::uint64_t>(&made);
  create.ps = id.port_space;
  create.qp_type = id.qp_type;
  if (const int error = file.command(own_command(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof made)))
    return error;
  bind_to_kernel(id, made.id);
  for (const Id::Option& option : id.options) {
    rdma_ucm_set_option set{};
    set.optval = reinterpret_cast<std::uint64_t>(option.value.data());
    set.id = made.id;
    set.level = option.level;
    set.optname = option.name;
    set.optlen = static_cast<std::uint32_t>(option.value.size());
    if (const int error = file.command(own_command(RDMA_USER_CM_CMD_SET_OPTION, set, 0)))
      return error;
  }
  if (id.bound.addr_size != 0) {
    rdma_ucm_bind bind = id.bound;
    bind.id = made.id;
    if (const int error = file.command(own_command(RDMA_USER_CM_CMD_BIND, bind, 0))) return error;
  }
  if (id.state != Id::State::kListening) return 0;
  const rdma_ucm_listen listen{made.id, static_cast<std::uint32_t>(id.backlog)};
  return file.command(own_command(RDMA_USER_CM_CMD_LISTEN, listen, 0));
}

int Relay::resume() {
  std::lock_guard lock(mutex_);
  int failed = 0;
  const auto note = [&](int error) {
    if (failed == 0) failed = error;
    return error != 0;
  };
  if (is_parked_) {
    for (auto& [descriptor, channel] : channels_) {
      int error = 0;
      channel->file = kernel_.open(&error);
      if (channel->file != nullptr) error = channel->steady.watch(channel->file->descriptor());
      note(error);
    }
    for (auto& [handle, id] : ids_) {
      if (id.state > Id::State::kListening) continue;
      const int error = id.channel->file != nullptr ? make_anew(id) : ENODEV;
      if (!note(error)) continue;
      if (id.is_here) detach(id);
      id.state = Id::State::kEnded;
    }
  }
  mute_channels();
  is_parked_ = is_stopped_ = false;
  changed_.notify_all();
  return failed;
}

agent::RdmaCmStatus Relay::status() {
  std::lock_guard lock(mutex_);
  reap();
  agent::RdmaCmStatus status;
  status.channels = static_cast<std::uint32_t>(channels_.size());
  if (const char* name = obstacle(devices_.connections())) status.obstacle = name;
  if (const char* name = half_made()) status.half_made = name;
  for (auto& [handle, id] : ids_) {
    if (id.is_here) keep_port(id);
    if (id.bound.addr_size == 0 || id.state > Id::State::kListening) continue;
    port::SocketAddress bound{};
    std::memcpy(&bound, &id.bound.addr, sizeof bound);
    status.bound.push_back({id.port_space, port::from_socket_address(bound),
                            has_option(id, RDMA_OPTION_ID_REUSEADDR),
                            has_option(id, RDMA_OPTION_ID_AFONLY)});
  }
  return status;
}

}  // namespace ferry::relay
