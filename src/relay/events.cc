#include <errno.h>
#include <stddef.h>

#include <algorithm>
#include <utility>

#include "relay/relay.h"

// Events of the kernel, and those that the relay makes or keeps.
namespace ferry::relay {

int Relay::get_event(Channel& channel, const Command& command) {
  if (command.room() < offsetof(rdma_ucm_event_resp, reserved)) return ENOSPC;
  Event event;
  if (!channel.kept.empty()) {
    event = channel.kept.front();
    channel.kept.pop_front();
    if (channel.kept.empty()) channel.steady.silence();
  } else if (const int error = take_from_kernel(channel, &event)) {
    return error;
  }
  if (const auto id = ids_.find(event.id); id != ids_.end()) ++id->second.events_reported;
  if (const auto group = groups_.find(event.group); group != groups_.end())
    ++group->second.events_reported;
  respond(command.response(), event.response, command.room());
  return 0;
}

int Relay::take_from_kernel(Channel& channel, Event* out) {
  if (channel.file == nullptr) return EAGAIN;
  for (;;) {
    *out = {};
    rdma_ucm_get_event body{};
    body.response = reinterpret_cast<std::uint64_t>(&out->response);
    const auto bytes = own_command(RDMA_USER_CM_CMD_GET_EVENT, body, sizeof out->response);
    if (const int error = channel.file->command(bytes)) return error;
    if (note_event(channel, out)) return 0;
  }
}

// An event of an ID that the program has destroyed in this moment is dropped, as the kernel does.
bool Relay::note_event(Channel& channel, Event* event) {
  rdma_ucm_event_resp& response = event->response;
  if (response.event == event::kConnectRequest) return note_request(channel, event);
  const bool is_groups =
      response.event == event::kMulticastJoin || response.event == event::kMulticastError;
  if (is_groups) {
    const auto group = channel.groups.find(response.id);
    if (group == channel.groups.end()) return false;
    event->group = group->second;
    event->id = groups_.at(group->second).id;
    response.id = group->second;
  } else {
    const auto found = channel.ids.find(response.id);
    if (found == channel.ids.end()) return false;
    event->id = response.id = found->second;
  }
  Id& id = ids_.at(event->id);
  if ((response.event == event::kDisconnected || response.event == event::kTimewaitExit) &&
      id.state == Id::State::kConnected && peer_moves(id)) {
    id.withheld.push_back(*event);
    return false;
  }
  const bool has_path = is_groups || (response.event == event::kEstablished &&
                                      response.param.ud.ah_attr.is_global != 0 && id.is_datagram());
  if (has_path) {
    if (id.device == 0) id.device = device_of(*channel.file, devices_, id.kernels);
    devices_.rename_path(id.device, &response.param.ud.ah_attr);
  }
  if (!is_groups) note_state(id, *event);
  return true;
}

// The request is for the ID that listens, by whose uid it comes; the kernel has made another one for the connection.
bool Relay::note_request(Channel& channel, Event* event) {
  const auto listener = std::find_if(ids_.begin(), ids_.end(), [&](const auto& each) {
    const Id& id = each.second;
    return id.channel.get() == &channel && id.uid == event->response.uid &&
           id.state == Id::State::kListening;
  });
  if (listener == ids_.end()) {  // the program has destroyed it in this moment
    destroy_in(*channel.file, event->response.id);
    return false;
  }
  Id& id = add_id();
  id.channel = listener->second.channel;
  id.uid = event->response.uid;
  id.port_space = listener->second.port_space;
  id.qp_type = listener->second.qp_type;
  id.state = Id::State::kRequested;
  bind_to_kernel(id, event->response.id);
  event->id = listener->first;
  event->new_id = event->response.id = id.handle;
  return true;
}

void Relay::note_state(Id& id, const Event& event) {
  switch (event.response.event) {
    case event::kAddressResolved:
    case event::kRouteResolved: id.state = Id::State::kResolved; break;
    case event::kAddressError:
      id.state = id.bound.addr_size != 0 ? Id::State::kBound : Id::State::kIdle;
      break;
    case event::kRouteError: id.state = Id::State::kResolved; break;
    case event::kConnectResponse: id.state = Id::State::kAnswered; break;
    case event::kEstablished: id.state = Id::State::kConnected; break;
    case event::kConnectError:
    case event::kUnreachable:
    case event::kRejected: id.state = Id::State::kEnded; break;
    case event::kDisconnected:
      id.state = Id::State::kEnded;
      id.awaits_last = true;
      break;
    case event::kTimewaitExit: id.awaits_last = false; break;
    default: break;
  }
}

void Relay::keep(Channel& channel, const Event& event) {
  channel.kept.push_back(event);
  channel.steady.ring();
}

void Relay::raise(Id& id, std::uint32_t number) {
  Event event;
  event.id = id.handle;
  event.response.uid = id.uid;
  event.response.id = id.handle;
  event.response.event = number;
  note_state(id, event);
  keep(*id.channel, event);
}

void Relay::show_withheld(Id& id) {
  for (const Event& event : std::exchange(id.withheld, {})) {
    note_state(id, event);
    keep(*id.channel, event);
  }
}

// --- News of peers

void Relay::take_news(device::CmNews news, __be64 guid, std::uint32_t qpn) {
  std::lock_guard lock(news_mutex_);
  news_.push_back({news, guid, qpn});
}

// The news may have come since the event was asked for.
bool Relay::peer_moves(const Id& id) {
  if (id.peer_moves) return true;
  std::lock_guard lock(news_mutex_);
  return std::any_of(news_.begin(), news_.end(), [&](const News& news) {
    return news.what == device::CmNews::kPeerMoves && news.guid == id.device && news.qpn == id.qpn;
  });
}

void Relay::tend() {
  std::lock_guard lock(mutex_);
  heed_news();
  bool is_any_muted = false;
  for (auto& [descriptor, channel] : channels_) {
    if (!channel->is_muted) continue;
    is_any_muted = true;
    Event event;
    while (take_from_kernel(*channel, &event) == 0) keep(*channel, event);
  }
  if (is_any_muted) mute_channels();
}

std::vector<int> Relay::awaited() {
  std::lock_guard lock(mutex_);
  std::vector<int> awaited;
  if (is_inherited_) return awaited;
  for (const auto& [descriptor, channel] : channels_) {
    if (channel->is_muted && channel->file != nullptr)
      awaited.push_back(channel->file->descriptor());
  }
  return awaited;
}

// A descriptor that is readable for a withheld event would have the program wait for another one.
void Relay::mute_channels() {
  for (auto& [descriptor, channel] : channels_) {
    const bool is_muted = std::any_of(ids_.begin(), ids_.end(), [&](const auto& each) {
      const Id& id = each.second;
      return id.channel == channel && id.is_here && id.peer_moves;
    });
    if (std::exchange(channel->is_muted, is_muted) != is_muted) channel->steady.mute(is_muted);
  }
}

void Relay::heed_news() {
  std::vector<News> news;
  {
    std::lock_guard lock(news_mutex_);
    news.swap(news_);
  }
  std::optional<Connections> connections;
  for (const auto& [what, guid, qpn] : news) {
    const bool is_of_move =
        what == device::CmNews::kPeerMoves || what == device::CmNews::kPeerStays;
    if (!is_of_move) collect_events();  // the program may not know yet that it is connected
    if (!connections) connections = devices_.connections();
    for (auto& [handle, id] : ids_) {
      if (id.qpn != qpn || id.device != guid || id.is_ending) continue;
      const bool is_connected =
          id.state == Id::State::kConnected || id.state == Id::State::kDisconnecting;
      // An ID that the program has kept may have had a QP of the same number.
      if (is_of_move || (is_connected && ends_of(id, *connections))) heed(what, id, *connections);
    }
  }
  if (!news.empty() && !is_inherited_) mute_channels();
}

void Relay::heed(device::CmNews news, Id& id, const Connections& connections) {
  switch (news) {
    case device::CmNews::kPeerMoves:
      id.peer_moves = true;
      if (id.is_here) id.ends = ends_of(id, connections);
      break;
    case device::CmNews::kPeerStays:
      id.peer_moves = false;
      if (id.is_here) id.ends.reset();
      show_withheld(id);
      break;
    case device::CmNews::kDetached:
    case device::CmNews::kDisconnected: {
      // The kernel would wait long for an answer to the program's own disconnection.
      const bool disconnects = id.state == Id::State::kDisconnecting;
      id.withheld.clear();
      if (id.is_here) {
        keep_answers(id, connections);
        detach(id);  // or the kernel would tell the same later
      }
      if (disconnects || news == device::CmNews::kDisconnected) raise(id, event::kDisconnected);
      // As from the kernel, this comes when the program has disconnected as well.
      if (disconnects) raise(id, event::kTimewaitExit);
      break;
    }
  }
}

}  // namespace ferry::relay
