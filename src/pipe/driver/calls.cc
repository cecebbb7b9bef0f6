// The control calls: what a program asks over its socket. Every field of a request may be anything.

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "pipe/driver/driver.h"

namespace ferry::pipe {
namespace {

constexpr std::uint16_t kFirstPort = 49152;  // of those that a socket gets that has not been bound
constexpr std::size_t kMostBacklog = 4096;

// The one that is there, or a new one.
std::shared_ptr<Owner> owner_at(std::weak_ptr<Owner>& place, std::uint16_t id,
                                const Limits& limits) {
  auto owner = place.lock();
  if (!owner) place = owner = std::make_shared<Owner>(id, limits);
  return owner;
}

// In which layer-2 domains networks have an address; each is asked once.
class Domains {
 public:
  explicit Domains(const SocketAddress& address) : address_(address) {}

  const std::optional<Domain>& of(NetworkNamespace& network) {
    const auto [place, is_new] = known_.try_emplace(network.id());
    if (is_new) place->second = network.domain_of(address_);
    return place->second;
  }

 private:
  const SocketAddress address_;
  std::map<std::uint64_t, std::optional<Domain>> known_;
};

// The address that the server sees. Nothing: it is of another layer-2 domain than the route. Whether the server may
// see it, the network decides, by TCP.
std::optional<SocketAddress> source_of(NetworkNamespace& network, const Socket& socket,
                                       const Route& route) {
  const bool chosen = socket.bound && !is_any(socket.local);
  const SocketAddress& source = chosen ? socket.local : route.source;
  if (!route.own && network.domain_of(source) != route.domain) return std::nullopt;
  return source;
}

}  // namespace

std::shared_ptr<Owner> Driver::container_of(const OwnerName& name) {
  auto& place = containers_[{name.network, name.pid_namespace}];
  return owner_at(place, place.expired() ? next_container_++ : 0, settings_.container);
}

Owners Driver::owners_of(const OwnerName& name) {
  auto container = container_of(name), user = user_of(name);
  return user ? Owners{container, user} : Owners{container};
}

std::shared_ptr<Owner> Driver::user_of(const OwnerName& name) {
  return name.user == 0 ? nullptr : owner_at(users_[name.user], 0, settings_.user);
}

std::shared_ptr<Session> Driver::open(Peer peer) {
  std::erase_if(containers_, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(users_, [](const auto& entry) { return entry.second.expired(); });
  auto container = container_of(peer.owner()), user = user_of(peer.owner());
  // Who is about to come again has its place.
  const bool comes_again = is_absent(peer.process()) && !has_session(peer.process());
  for (const auto& owner : {container, user}) {
    if (owner && !comes_again &&
        owner->sessions + owner->absent_sessions >= owner->limits.sessions) {
      return nullptr;
    }
  }
  auto session = std::make_shared<Session>(next_session_++, std::move(peer), std::move(container),
                                           std::move(user));
  std::erase_if(sessions_, [](const auto& each) { return each.expired(); });
  sessions_.push_back(session);
  apply_limits(*session);
  return session;
}

void Driver::close(const std::shared_ptr<Session>& session) {
  work(session, kQueueDepth);  // not more: somebody else may have the queues, and fill them again
  for (const auto& socket : session->sockets()) {
    close_socket(*session, socket, !socket->has_ended);
  }
}

Driver::Answer Driver::handle(const std::shared_ptr<Session>& session,
                              const ControlRequest& request, const std::vector<Given>& given) {
  Answer answer;
  if (request.call == Call::kHello) return hello(*session, request);
  if (request.call == Call::kResume) return resume(session, request, given);
  if (!session->is_open()) {
    answer.reply.error = ENOTCONN;
    return answer;
  }
  // What the program has submitted before, it has asked for before.
  work(session, kQueueDepth);
  if (request.call == Call::kRestore) answer.reply.error = restore_socket(session, request);
  if (request.call == Call::kResumed) resumed(session);
  if (request.call == Call::kRestore || request.call == Call::kResumed) return answer;
  if (request.call == Call::kSocket) {
    if (request.number != AF_INET && request.number != AF_INET6) {
      answer.reply.error = EAFNOSUPPORT;
    } else if (const auto socket = session->add_socket()) {
      socket->family = static_cast<std::uint16_t>(request.number);
      socket->local.family = socket->family;
      socket->out->set_sender({session, socket->id}, session->container->id);
      answer.reply.socket = socket->id;
    } else {
      answer.reply.error = EMFILE;
    }
    return answer;
  }
  const auto socket = session->find(request.socket);
  if (!socket) {
    const bool was_held = request.call == Call::kClose && session->release(request.socket.number);
    answer.reply.error = was_held ? 0 : EBADF;
    return answer;
  }
  auto& error = answer.reply.error;
  switch (request.call) {
    case Call::kBind:
      error = bind(*session, *socket, request, given.size() == 1 ? given.front() : nullptr);
      break;
    case Call::kListen: error = listen(session, socket, request); break;
    case Call::kAccept: return accept(session, *socket);
    case Call::kConnect: return connect(session, *socket, request.address);
    case Call::kRings:
      error = make_rings(*session, *socket);
      if (error == 0) give_rings(*socket, &answer);
      break;
    case Call::kAllocate: return allocate(*session, *socket, request.sizes[0]);
    case Call::kGiveRings: error = take_rings(*session, *socket, given); break;
    case Call::kRestoreBlock:
      error = socket->out->restore_block(request.number, request.sizes[0], request.sizes[1])
                  ? 0
                  : EINVAL;
      break;
    case Call::kRejoin: error = rejoin(session, *socket, request); break;
    case Call::kFree: error = socket->out->free(request.number) ? 0 : EINVAL; break;
    case Call::kShutdown: error = shutdown(*socket, request.number); break;
    case Call::kEnd:
      error = shutdown(*socket, SHUT_RDWR);
      socket->has_ended = error == 0;
      break;
    case Call::kClose: close_socket(*session, socket, false); break;
    case Call::kGiveUp:
      close_socket(*session, socket, false);
      session->hold(request.socket.number);
      break;
    case Call::kBufferSizes: error = buffer_sizes(*socket, request); break;
    default: error = EOPNOTSUPP;
  }
  return answer;
}

Driver::Answer Driver::hello(Session& session, const ControlRequest& request) {
  Answer answer;
  const std::size_t length = ::strnlen(request.name, sizeof request.name);
  if (request.number != kControlVersion) {
    answer.reply.error = EPROTONOSUPPORT;
  } else if (length != 0 && std::string_view(request.name, length) != engine_.name()) {
    answer.reply.error = ENODEV;
  } else if (session.is_open()) {
    answer.reply.error = EISCONN;
  } else if (!session.open_queues(
                 settings_.queues,
                 static_cast<std::uint32_t>(std::min<std::uint64_t>(request.sizes[1], kQueueDepth)),
                 pool_)) {
    answer.reply.error = ENOBUFS;
  } else {
    // It has one program at a time: what it had of an earlier one is over.
    has_ended(session.peer.process());
    std::uint64_t name = 0;
    do {
      name = settings_.records->next_session();
    } while (has_session(session.peer.process(), name));
    session.name = name;
    answer.reply.number = settings_.queues;
    answer.reply.sizes[0] = session.name;
    answer.reply.sizes[1] = static_cast<std::uint64_t>(settings_.away.count());
    answer.descriptors = {session.queue_descriptor(), session.doorbell(), session.notice()};
  }
  return answer;
}

std::int32_t Driver::bind(Session& session, Socket& socket, const ControlRequest& request,
                          Given bound) {
  if (socket.state != Socket::State::kActive || socket.bound) return EINVAL;
  if (request.address.family != socket.family) return EAFNOSUPPORT;
  // The kernel has checked whether the program may have the port, and that nobody else has it.
  if (!bound) return EACCES;
  // net.ipv4.ip_nonlocal_bind lets a container bind what it does not have.
  if (!is_any(request.address) && !session.peer.network->has(request.address)) return EADDRNOTAVAIL;
  socket.local = request.address;
  socket.bound = std::move(bound);
  return 0;
}

std::int32_t Driver::listen(const std::shared_ptr<Session>& session,
                            const std::shared_ptr<Socket>& socket, const ControlRequest& request) {
  if (socket->state == Socket::State::kConnected) return EINVAL;
  if (!socket->bound) return EDESTADDRREQ;
  socket->backlog = std::clamp<std::size_t>(request.number, 1, kMostBacklog);
  if (socket->state == Socket::State::kListening) return 0;
  NetworkNamespace& network = *session->peer.network;
  // Two sockets may be bound to the same port with SO_REUSEADDR, but one listens.
  if (!network.listens(socket->bound->get())) return EACCES;
  Domains domains(socket->local);
  // Of a layer-2 domain that has other containers.
  const bool is_seen = !is_any(socket->local) && domains.of(network);
  const auto [first, last] = listeners_.equal_range(socket->local.port);
  for (auto listener = first; listener != last; ++listener) {
    const auto other = listener->second.session.lock();
    const Socket& theirs = *listener->second.socket;
    if (!other || theirs.family != socket->family) continue;
    NetworkNamespace& their_network = *other->peer.network;
    // Of the same network: by SO_REUSEPORT. Else another container of the layer-2 domain has the address as well.
    const bool same = theirs.local == socket->local;
    const bool meet = their_network.id() == network.id()
                          ? same
                          : is_seen && (same || is_any(theirs.local)) &&
                                domains.of(their_network) == domains.of(network);
    if (meet && their_network.listens(theirs.bound->get())) return EADDRINUSE;
  }
  socket->state = Socket::State::kListening;
  listeners_.emplace(socket->local.port, Listener{session, socket});
  socket->come = request.count;
  take_waiting(session, *socket);
  mark({session, socket->id});
  return 0;
}

const Driver::Listener* Driver::find_listener(NetworkNamespace& network, const SocketAddress& to,
                                              const Route& route) {
  const auto [first, last] = listeners_.equal_range(to.port);
  const Listener* found = nullptr;
  std::uint64_t network_of_found = 0;
  Domains domains(to);
  for (auto listener = first; listener != last; ++listener) {
    const auto& [weak_session, socket] = listener->second;
    const auto session = weak_session.lock();
    if (!session || socket->family != to.family) continue;
    const bool exactly = socket->local.ip == to.ip;
    if (!exactly && !is_any(socket->local)) continue;
    NetworkNamespace& theirs = *session->peer.network;
    const bool reached =
        route.own ? theirs.id() == network.id() : domains.of(theirs) == route.domain;
    // shutdown() of a TCP socket, which the program has as well, gives the port to whoever binds it next.
    if (!reached || !theirs.listens(socket->bound->get())) continue;
    if (found != nullptr && network_of_found != theirs.id()) return nullptr;
    if (found == nullptr || exactly) found = &listener->second;
    network_of_found = theirs.id();
  }
  return found;
}

Driver::Answer Driver::connect(const std::shared_ptr<Session>& session, Socket& socket,
                               SocketAddress to) {
  Answer answer;
  auto& error = answer.reply.error;
  if (socket.state != Socket::State::kActive) {
    error = socket.state == Socket::State::kConnected ? EISCONN : EOPNOTSUPP;
    return answer;
  }
  if (to.family != socket.family) {
    error = EAFNOSUPPORT;
    return answer;
  }
  // It asks again: another driver was killed before it has answered.
  if (const auto end = find_absent(*session, socket.id); end != absent_.end()) {
    if (end->second.side != 0) {  // it has been accepted
      error = EISCONN;
      return answer;
    }
    error = make_rings(*session, socket);
    if (error == 0) error = rejoin(session, socket, {});
    answer.reply.local = socket.local;
    answer.reply.peer = socket.peer;
    return answer;
  }
  if (is_any(to)) {  // as Linux has it: this host
    if (to.family == AF_INET) to.ip = {127, 0, 0, 1};
    if (to.family == AF_INET6) to.ip[15] = 1;
  }
  NetworkNamespace& network = *session->peer.network;
  const auto route = listeners_.contains(to.port) ? network.route_to(to) : std::nullopt;
  const auto source = route ? source_of(network, socket, *route) : std::nullopt;
  const Listener* listener = source ? find_listener(network, to, *route) : nullptr;
  if (listener == nullptr) {
    error = kForeign;
    return answer;
  }
  if (!access_.allows(*source, to)) {
    error = ECONNREFUSED;
    return answer;
  }
  const auto server = listener->session.lock();
  if (listener->socket->waiting.size() >= listener->socket->backlog || !server->may_wait()) {
    error = ECONNREFUSED;
    return answer;
  }
  error = make_rings(*session, socket);
  if (error != 0) return answer;
  const auto connection = connections_.add(socket.out, std::make_shared<Stream>());
  if (!connection) {
    error = ENOBUFS;
    return answer;
  }
  SocketAddress& local = connection->addresses[0];
  local = *source;
  local.family = to.family;
  local.port = socket.bound ? socket.local.port : 0;
  if (local.port == 0) {
    local.port = static_cast<std::uint16_t>(kFirstPort + next_port_++ % (65536 - kFirstPort));
  }
  connection->addresses[1] = to;
  connection->containers[0] = session->container;
  connection->streams[1]->set_receiver({session, socket.id});
  connection->streams[1]->set_receive_ring(socket.rings[1]);
  session->connect(socket, connection, 0);
  answer.reply.local = socket.local;
  answer.reply.peer = to;
  write_down(connection, *session, socket, *server, listener->socket->id);
  server->enqueue(*listener->socket, connection);
  mark({server, listener->socket->id});
  return answer;
}

Driver::Answer Driver::accept(const std::shared_ptr<Session>& session, Socket& listener) {
  Answer answer;
  auto& error = answer.reply.error;
  if (listener.state != Socket::State::kListening) {
    error = EINVAL;
  } else if (listener.waiting.empty()) {
    error = EAGAIN;
  }
  if (error != 0) return answer;
  const auto socket = session->add_socket();
  if (!socket) {
    error = EMFILE;
    return answer;
  }
  socket->family = listener.family;
  std::copy_n(listener.ring_sizes, 2, socket->ring_sizes);
  const auto connection = listener.waiting.front();
  socket->out = connection->streams[1];
  socket->out->set_sender({session, socket->id}, session->container->id);
  error = make_rings(*session, *socket);
  if (error != 0) {
    session->remove_socket(*socket);
    return answer;
  }
  session->dequeue(listener);
  connection->containers[1] = session->container;
  connections_.write(*connection, [&](ConnectionRecord& record) {
    record.ends[1].socket = socket->id;
    for (int each = 0; each < 2; ++each) record.ends[1].rings[each] = socket->rings[each]->size();
    record.ends[1].state = EndRecord::kOpen;
  });
  connection->streams[0]->set_receiver({session, socket->id});
  session->connect(*socket, connection, 1);
  answer.reply.socket = socket->id;
  answer.reply.local = socket->local;
  answer.reply.peer = socket->peer;
  give_rings(*socket, &answer);
  answer.accepted = connection;
  return answer;
}

void Driver::sent(const Answer& answer) {
  if (!answer.accepted) return;
  Stream& stream = *answer.accepted->streams[0];
  stream.set_receive_ring(answer.keep.at(1));
  if (stream.has_more()) move({{answer.accepted, 0}});  // what the client has sent meanwhile
  tell_both(stream);
}

std::int32_t Driver::make_rings(Session& session, Socket& socket) {
  if (socket.state == Socket::State::kListening) return EOPNOTSUPP;
  if (socket.rings[0]) return 0;
  int error = 0;
  std::shared_ptr<Ring> rings[2];
  for (int side = 0; side < 2; ++side) {
    rings[side] = pool_.make(socket.ring_sizes[side], session.accounts(), &error);
    if (!rings[side]) return error;
  }
  std::move(rings, rings + 2, socket.rings);
  socket.out->set_send_ring(socket.rings[0]);
  return 0;
}

void Driver::give_rings(const Socket& socket, Answer* answer) {
  for (int side = 0; side < 2; ++side) {
    answer->reply.sizes[side] = socket.rings[side]->size();
    answer->descriptors.push_back(socket.rings[side]->descriptor());
    answer->keep.push_back(socket.rings[side]);
  }
}

std::int32_t Driver::buffer_sizes(Socket& socket, const ControlRequest& request) {
  if (socket.rings[0]) return EISCONN;
  for (const std::uint64_t size : request.sizes) {
    if (size > kLargestRing) return EINVAL;
  }
  for (int side = 0; side < 2; ++side) {
    if (request.sizes[side] != 0) socket.ring_sizes[side] = request.sizes[side];
  }
  return 0;
}

Driver::Answer Driver::allocate(Session& session, Socket& socket, std::size_t size) {
  Answer answer;
  answer.reply.error = make_rings(session, socket);
  if (answer.reply.error != 0) return answer;
  const int block = socket.out->allocate(size, &answer.reply.sizes[0]);
  if (block < 0) answer.reply.error = ENOMEM;
  answer.reply.number = static_cast<std::uint32_t>(block);
  return answer;
}

std::int32_t Driver::shutdown(Socket& socket, std::uint32_t how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  if (socket.state != Socket::State::kConnected) return ENOTCONN;
  if (how != SHUT_RD) socket.out->end(false);
  if (how != SHUT_WR) socket.in->close_reading();
  tell_both(*socket.out);
  return 0;
}

void Driver::close_socket(Session& session, const std::shared_ptr<Socket>& socket, bool at_once) {
  if (socket->state == Socket::State::kListening) {
    const auto [first, last] = listeners_.equal_range(socket->local.port);
    const auto listener =
        std::find_if(first, last, [&](const auto& entry) { return entry.second.socket == socket; });
    if (listener != last) listeners_.erase(listener);
  }
  for (const auto& connection : socket->waiting) {
    // Nobody has accepted them.
    for (const auto& stream : connection->streams) stream->reset();
    leave(*connection, 1);
  }
  if (const auto end = take_absent(session, socket->id)) leave(*end->connection, end->side);
  if (socket->connection) leave(*socket->connection, socket->side, at_once);
  session.remove_socket(*socket);
}

}  // namespace ferry::pipe
