#include "relay/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace ferry::relay {
namespace {

constexpr int kMost = 1 << 16;  // IDs and groups of a program

bool is_query(std::uint32_t number) {
  return number == RDMA_USER_CM_CMD_QUERY_ROUTE || number == RDMA_USER_CM_CMD_QUERY ||
         number == RDMA_USER_CM_CMD_INIT_QP_ATTR;
}

}  // namespace

// --- Channels

int Relay::open(int flags) {
  const Lock lock = lock_running();
  reap();
  int error = 0;
  auto file = kernel_.open(&error);
  auto channel = std::make_shared<Channel>();
  if (file != nullptr) {
    channel->number = file->number();
    error = channel->steady.open();
    if (error == 0) error = channel->steady.watch(file->descriptor());
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  const int descriptor = channel->steady.number();
  if ((flags & O_CLOEXEC) == 0) ::fcntl(descriptor, F_SETFD, 0);
  if ((flags & O_NONBLOCK) != 0)
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  channel->file = std::move(file);
  channels_[descriptor] = std::move(channel);
  return descriptor;
}

Relay::ChannelRef Relay::channel_of(int descriptor) {
  const auto found = channels_.find(descriptor);
  return found != channels_.end() && found->second->steady.is_open() ? found->second : nullptr;
}

bool Relay::has(int descriptor) {
  std::lock_guard lock(mutex_);
  return channel_of(descriptor) != nullptr;
}

dev_t Relay::number_of(int descriptor) {
  std::lock_guard lock(mutex_);
  const ChannelRef channel = channel_of(descriptor);
  return channel != nullptr ? channel->number : 0;
}

// A thread may still wait for events of the channel: it waits for the number of the descriptor, as it would at the
// kernel's.
bool Relay::close(int descriptor) {
  const Lock lock = lock_running();
  const ChannelRef channel = channel_of(descriptor);
  if (channel == nullptr) return false;
  end_ids_of(channel);
  channels_.erase(descriptor);
  return true;
}

// The kernel ends its IDs with the file.
void Relay::end_ids_of(const ChannelRef& channel) {
  std::vector<std::uint32_t> handles;
  for (auto& [handle, id] : ids_) {
    if (id.channel != channel) continue;
    take_leave(id);
    leave_kernel(id);
    handles.push_back(handle);
  }
  for (const std::uint32_t handle : handles) {
    const auto found = ids_.find(handle);
    if (found != ids_.end()) forget(found->second);
  }
}

void Relay::reap() {
  std::erase_if(channels_, [&](const auto& each) {
    if (each.second->steady.is_open()) return false;
    each.second->steady.abandon();
    end_ids_of(each.second);
    return true;
  });
}

// --- IDs

Relay::Lock Relay::lock_running() {
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_stopped_; });
  heed_news();
  return lock;
}

Id* Relay::find(const Channel& channel, std::uint32_t handle) {
  const auto found = ids_.find(handle);
  const bool is_its = found != ids_.end() && found->second.channel.get() == &channel;
  return is_its && !found->second.is_ending ? &found->second : nullptr;
}

Id& Relay::add_id() {
  while (ids_.contains(++last_handle_) || groups_.contains(last_handle_) || last_handle_ == 0) {
  }
  Id& id = ids_[last_handle_];
  id.handle = last_handle_;
  return id;
}

void Relay::bind_to_kernel(Id& id, std::uint32_t kernels) {
  id.kernels = kernels;
  id.is_here = true;
  id.channel->ids[kernels] = id.handle;
}

// Another ID may have the kernel's number by now (destroy_id()).
void Relay::leave_kernel(Id& id) {
  const auto found = id.channel->ids.find(id.kernels);
  if (id.is_here && found != id.channel->ids.end() && found->second == id.handle)
    id.channel->ids.erase(found);
  id.is_here = false;
}

void Relay::forget(Id& id) {
  leave_kernel(id);
  Channel& channel = *id.channel;
  const std::uint32_t handle = id.handle;
  std::vector<std::uint32_t> requests;
  std::erase_if(channel.kept, [&](const Event& event) {
    if (event.id == handle && event.new_id != 0) requests.push_back(event.new_id);
    return event.id == handle;
  });
  if (channel.kept.empty()) channel.steady.silence();
  std::erase_if(groups_, [&](const auto& group) {
    if (group.second.id != handle) return false;
    const auto found = channel.groups.find(group.second.kernels);
    if (found != channel.groups.end() && found->second == group.first) channel.groups.erase(found);
    return true;
  });
  ids_.erase(handle);
  // The program has not heard of these requests, and the kernel believes that it has.
  for (const std::uint32_t request : requests) {
    const auto found = ids_.find(request);
    if (found == ids_.end()) continue;
    if (found->second.is_here) detach(found->second);
    ids_.erase(found);
  }
}

// --- Commands

int Relay::command(int descriptor, std::span<const std::byte> bytes) {
  std::optional<Command> command = Command::read(bytes);
  Lock lock = lock_running();
  const ChannelRef channel = channel_of(descriptor);
  if (channel == nullptr) {
    reap();
    return EBADF;
  }
  if (!command) return EINVAL;  // as a kernel that does not know it
  return run(lock, channel, std::move(*command));
}

int Relay::run(Lock& lock, const ChannelRef& channel, Command command) {
  switch (command.number()) {
    case RDMA_USER_CM_CMD_CREATE_ID: return create_id(channel, std::move(command));
    case RDMA_USER_CM_CMD_DESTROY_ID: return destroy_id(lock, *channel, std::move(command));
    case RDMA_USER_CM_CMD_MIGRATE_ID: return migrate_id(channel, command);
    case RDMA_USER_CM_CMD_LEAVE_MCAST: return leave_group(*channel, std::move(command));
    case RDMA_USER_CM_CMD_GET_EVENT: return get_event(*channel, command);
    case RDMA_USER_CM_CMD_GET_OPTION:
      return ENOSYS;  // as from the kernel, which has only its number
    default: break;
  }
  Id* const id = find(*channel, command.id());
  if (id == nullptr) return ENOENT;
  if (is_query(command.number())) return query(*id, command);
  if (!id->is_here) return run_detached(*id, command);
  if (command.number() == RDMA_USER_CM_CMD_JOIN_IP_MCAST ||
      command.number() == RDMA_USER_CM_CMD_JOIN_MCAST)
    return join(*channel, *id, std::move(command));
  return pass_on(*channel, *id, std::move(command));
}

int Relay::create_id(const ChannelRef& channel, Command command) {
  if (channel->file == nullptr) return ENODEV;  // resume() could not open it
  if (ids_.size() >= kMost) return ENOMEM;
  const std::uint64_t where = command.response();
  const std::size_t room = command.room();
  rdma_ucm_create_id_resp answer{};
  if (room < sizeof answer) return ENOSPC;
  command.set_response(&answer, sizeof answer);
  if (const int error = channel->file->command(command.bytes())) return error;
  const auto body = command.body<rdma_ucm_create_id>();
  Id& id = add_id();
  id.channel = channel;
  id.uid = body.uid;
  id.port_space = body.ps;
  id.qp_type = body.qp_type;
  bind_to_kernel(id, answer.id);
  answer.id = id.handle;
  respond(where, answer, room);
  return 0;
}

// The kernel may wait until a handler of its own is done, and other commands go on meanwhile. It gives the number to
// the next ID before it is done.
int Relay::destroy_id(Lock& lock, Channel& channel, Command command) {
  const std::uint32_t handle = command.id();
  Id* id = find(channel, handle);
  if (id == nullptr) return ENOENT;
  const std::uint64_t where = command.response();
  const std::size_t room = command.room();
  if (room < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  take_leave(*id);
  if (id->is_here) {
    rdma_ucm_destroy_id_resp answer{};
    command.set_response(&answer, sizeof answer);
    command.set_id(id->kernels);
    id->is_ending = true;
    ++destroying_;
    lock.unlock();
    const int error = channel.file->command(command.bytes());
    lock.lock();
    --destroying_;
    changed_.notify_all();
    const auto found = ids_.find(handle);
    if (found == ids_.end()) return ENOENT;  // the channel was closed meanwhile
    id = &found->second;
    id->is_ending = false;
    if (error != 0) return error;
  }
  const rdma_ucm_destroy_id_resp answer{id->events_reported};
  forget(*id);
  respond(where, answer, room);
  return 0;
}

int Relay::put_into(const ChannelRef& channel, Id& id) {
  if (id.is_here) {
    rdma_ucm_migrate_resp answer{};
    rdma_ucm_migrate_id body{};
    body.response = reinterpret_cast<std::uint64_t>(&answer);
    body.id = id.kernels;
    body.fd = static_cast<std::uint32_t>(id.channel->file->descriptor());
    const auto bytes = own_command(RDMA_USER_CM_CMD_MIGRATE_ID, body, sizeof answer);
    if (const int error = channel->file->command(bytes)) return error;
    id.channel->ids.erase(id.kernels);
    channel->ids[id.kernels] = id.handle;
  }
  id.channel = channel;
  return 0;
}

// With the ID go its events, and the IDs of requests that the program has not seen.
int Relay::migrate_id(const ChannelRef& channel, const Command& command) {
  const auto body = command.body<rdma_ucm_migrate_id>();
  const ChannelRef from = channel_of(static_cast<int>(body.fd));
  Id* const id = from != nullptr ? find(*from, body.id) : nullptr;
  if (id == nullptr) return ENOENT;
  if (channel->file == nullptr) return ENODEV;  // resume() could not open it
  if (from != channel) {
    if (const int error = put_into(channel, *id)) return error;
    for (const auto& [handle, group] : groups_) {
      if (group.id != id->handle) continue;
      from->groups.erase(group.kernels);
      channel->groups[group.kernels] = handle;
    }
    for (const Event& event : std::exchange(from->kept, {})) {
      if (event.id != id->handle) {
        from->kept.push_back(event);
        continue;
      }
      keep(*channel, event);
      const auto request = ids_.find(event.new_id);
      if (request != ids_.end()) put_into(channel, request->second);
    }
    if (from->kept.empty()) from->steady.silence();
  }
  const rdma_ucm_migrate_resp answer{id->events_reported};
  respond(body.response, answer, command.room());
  return 0;
}

// Both commands for it begin alike.
int Relay::join(Channel& channel, Id& id, Command command) {
  const std::uint64_t where = command.response();
  const std::size_t room = command.room();
  rdma_ucm_create_id_resp answer{};
  if (room < sizeof answer) return ENOSPC;
  command.set_response(&answer, sizeof answer);
  command.set_id(id.kernels);
  if (groups_.size() >= kMost) return ENOMEM;
  if (const int error = channel.file->command(command.bytes())) return error;
  while (ids_.contains(++last_handle_) || groups_.contains(last_handle_) || last_handle_ == 0) {
  }
  groups_[last_handle_] = {last_handle_, answer.id, id.handle, 0};
  channel.groups[answer.id] = last_handle_;
  ++id.groups;
  answer.id = last_handle_;
  respond(where, answer, room);
  return 0;
}

int Relay::leave_group(Channel& channel, Command command) {
  const auto found = groups_.find(command.id());
  if (found == groups_.end()) return ENOENT;
  const Group group = found->second;
  Id* const id = find(channel, group.id);
  if (id == nullptr) return ENOENT;
  const std::uint64_t where = command.response();
  const std::size_t room = command.room();
  rdma_ucm_destroy_id_resp answer{};
  if (room < sizeof answer) return ENOSPC;
  command.set_response(&answer, sizeof answer);
  command.set_id(group.kernels);
  if (const int error = channel.file->command(command.bytes())) return error;
  --id->groups;
  std::erase_if(channel.kept, [&](const Event& event) { return event.group == group.handle; });
  if (channel.kept.empty()) channel.steady.silence();
  channel.groups.erase(group.kernels);
  groups_.erase(group.handle);
  answer.events_reported = group.events_reported;
  respond(where, answer, room);
  return 0;
}

int Relay::query(Id& id, const Command& command) {
  std::vector<std::byte> answer;
  int error = EINVAL;
  if (id.is_here) {
    if (id.device == 0) id.device = device_of(*id.channel->file, devices_, id.kernels);
    error = ask_kernel(*id.channel->file, devices_, command, id.kernels, id.device, &answer);
  } else if (id.kept != nullptr) {
    error = id.kept->find(command, &answer);
  }
  if (error == 0) respond(command.response(), answer, command.room());
  return error;
}

int Relay::pass_on(Channel& channel, Id& id, Command command) {
  command.set_id(id.kernels);
  const int error = channel.file->command(command.bytes());
  if (command.number() == RDMA_USER_CM_CMD_DISCONNECT) {
    take_leave(id);
    show_withheld(id);  // the kernel does not tell again what it has told
  }
  if (error == 0) note_done(id, command);
  return error;
}

void Relay::note_done(Id& id, const Command& command) {
  switch (command.number()) {
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto body = command.body<rdma_ucm_bind_ip>();
      id.bound = {};
      id.bound.addr_size =
          body.addr.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof body.addr;
      std::memcpy(&id.bound.addr, &body.addr, sizeof body.addr);
      id.state = Id::State::kBound;
      break;
    }
    case RDMA_USER_CM_CMD_BIND:
      id.bound = command.body<rdma_ucm_bind>();
      id.state = Id::State::kBound;
      break;
    case RDMA_USER_CM_CMD_RESOLVE_IP:
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE: id.state = Id::State::kResolving; break;
    case RDMA_USER_CM_CMD_LISTEN:
      id.backlog = static_cast<int>(command.body<rdma_ucm_listen>().backlog);
      id.state = Id::State::kListening;
      break;
    case RDMA_USER_CM_CMD_CONNECT:
      id.qpn = command.body<rdma_ucm_connect>().conn_param.qp_num;
      id.device = device_of(*id.channel->file, devices_, id.kernels);
      id.state = Id::State::kConnecting;
      break;
    case RDMA_USER_CM_CMD_ACCEPT: {
      const auto body = command.body<rdma_ucm_accept>();
      if (body.conn_param.valid != 0) {  // else the program confirms what CONNECT has said
        id.uid = body.uid;
        id.qpn = body.conn_param.qp_num;
      }
      id.device = device_of(*id.channel->file, devices_, id.kernels);
      id.peer = peer_of(*id.channel->file, devices_, id.kernels, id.device);
      const bool is_last = id.state == Id::State::kAnswered || id.is_datagram();
      id.state = is_last ? Id::State::kConnected : Id::State::kConnecting;
      break;
    }
    case RDMA_USER_CM_CMD_REJECT: id.state = Id::State::kEnded; break;
    case RDMA_USER_CM_CMD_DISCONNECT:
      if (id.state == Id::State::kConnected)
        id.state = id.is_datagram() ? Id::State::kEnded : Id::State::kDisconnecting;
      break;
    case RDMA_USER_CM_CMD_SET_OPTION: {
      const auto body = command.body<rdma_ucm_set_option>();
      const auto* value = reinterpret_cast<const std::byte*>(body.optval);
      std::erase_if(id.options, [&](const Id::Option& option) {
        return option.level == body.level && option.name == body.optname;
      });
      id.options.push_back({body.level, body.optname, {value, value + body.optlen}});
      break;
    }
    default: break;
  }
}

int Relay::run_detached(Id& id, const Command& command) {
  switch (command.number()) {
    case RDMA_USER_CM_CMD_NOTIFY:
    case RDMA_USER_CM_CMD_SET_OPTION: return 0;
    case RDMA_USER_CM_CMD_DISCONNECT:
      if (id.state == Id::State::kConnected) {
        take_leave(id);
        id.state = Id::State::kEnded;
        if (!id.is_datagram()) raise(id, event::kDisconnected);
      }
      if (id.awaits_last) raise(id, event::kTimewaitExit);
      return 0;
    default: return EINVAL;
  }
}

bool Relay::leave() {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, id] : ids_) take_leave(id);
  return has_told_;
}

std::optional<Ends> Relay::ends_of(const Id& id, const Connections& connections) {
  if (id.qpn == 0 || id.is_datagram()) return std::nullopt;
  const auto [begin, end] = connections.equal_range({id.device, id.qpn});
  const auto found = std::find_if(begin, end, [&](const auto& connection) {
    return id.peer == 0 || connection.second.peer.qpn == id.peer;
  });
  if (found == end) return std::nullopt;
  return found->second;
}

void Relay::take_leave(const Id& id) {
  if (id.state != Id::State::kConnected) return;
  if (!id.ends || (id.is_here && !id.peer_moves)) return;
  devices_.tell_peer(id.device, *id.ends, device::CmNews::kDisconnected);
  has_told_ = true;
}

}  // namespace ferry::relay
