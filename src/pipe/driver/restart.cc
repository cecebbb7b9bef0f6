// What goes on when another ferry-piped takes the place of one that was killed: connections of the records, whose
// programs come again and say what they have. A program is believed only of its own ends: that they are its own, how
// much has been received, and who the peer is, stands in the records.

#include <netinet/in.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "pipe/driver/driver.h"

namespace ferry::pipe {
namespace {

// One for each processor that the host has, or may get.
std::uint32_t most_queues() {
  return static_cast<std::uint32_t>(std::max(1, ::get_nprocs_conf()));
}

}  // namespace

Driver::Place Driver::keep_place(const Owners& owners, std::size_t Owner::*count) {
  for (const auto& owner : owners) ++(*owner.*count);
  return Place(nullptr, [owners, count](void*) {
    for (const auto& owner : owners) --(*owner.*count);
  });
}

bool Driver::is_absent(const Process& process) const {
  const auto first = absent_queues_.lower_bound({process, 0});
  return first != absent_queues_.end() && first->first.first == process;
}

void Driver::restore() {
  for (const auto& connection : connections_.restore()) {
    bool closed[2] = {false, false};
    connections_.write(*connection, [&](ConnectionRecord& record) {
      for (int side = 0; side < 2; ++side) {
        const EndRecord& end = record.ends[side];
        const auto state = end.state.load();
        closed[side] = state == EndRecord::kClosed || state == EndRecord::kNobody;
        if (closed[side]) continue;
        const bool waits = state == EndRecord::kWaits;
        const Owners owners = owners_of(end.owner);
        const Accounts accounts = accounts_of(owners);
        Absent absent{connection, side, end.listener, owners, {}, {}};
        if (!waits) absent.place = keep_place(owners, &Owner::sockets);
        for (int each = 0; each < 2 && !waits; ++each) {
          absent.rings[each].emplace(pool_.keep(end.rings[each], accounts));
        }
        AbsentSession& its = absent_queues_[{end.process, end.session}];
        if (!its.queues) {
          its.queues.emplace(pool_.keep(end.queues, accounts));
          its.place = keep_place(owners, &Owner::absent_sessions);
        }
        absent_.emplace(
            AbsentName{end.process, end.session, waits ? end.listener : end.socket, waits},
            std::move(absent));
      }
    });
    for (int side = 0; side < 2; ++side) {
      if (closed[side]) leave(*connection, side);
    }
  }
}

// Nobody has this end any more. `at_once`: what it has sent and nobody has received is lost.
void Driver::leave(Connection& connection, int side, bool at_once) {
  connection.streams[side]->end(at_once);
  connection.streams[1 - side]->close_reading();
  connections_.write(
      connection, [&](ConnectionRecord& record) { record.ends[side].state = EndRecord::kClosed; });
  connection.is_left[side] = true;
  tell_both(*connection.streams[side]);
  forget_if_finished(connection);
}

// Before anything moves: what a driver after this one has to know of a new connection.
void Driver::write_down(const std::shared_ptr<Connection>& connection, const Session& client,
                        const Socket& socket, const Session& server, SocketId listener) {
  connections_.write(*connection, [&](ConnectionRecord& record) {
    const Session* const sessions[2] = {&client, &server};
    record.order = settings_.records->next_order();
    for (int side = 0; side < 2; ++side) {
      EndRecord& end = record.ends[side];
      record.addresses[side] = connection->addresses[side];
      end.process = sessions[side]->peer.process();
      end.session = sessions[side]->name;
      end.socket = side == 0 ? socket.id : SocketId{};
      end.listener = side == 0 ? SocketId{} : listener;
      end.owner = sessions[side]->peer.owner();
      end.queues = QueueMemory::size(sessions[side]->lanes());
      for (int each = 0; each < 2; ++each) {
        end.rings[each] = side == 0 ? socket.rings[each]->size() : 0;
      }
      end.state = side == 0 ? EndRecord::kOpen : EndRecord::kWaits;
      record.streams[side].received = 0;
      record.streams[side].ended = 0;
      record.streams[side].read_closed = 0;
      record.streams[side].reset = 0;
      connection->streams[side]->set_record(&record.streams[side]);
    }
    record.used = 1;
  });
}

std::vector<Process> Driver::absent() const {
  std::vector<Process> all;
  for (const auto& [name, end] : absent_) {
    if (all.empty() || all.back() != name.process) all.push_back(name.process);
  }
  return all;
}

void Driver::has_ended(const Process& process) {
  auto end = absent_.lower_bound({process, 0, {}, false});
  while (end != absent_.end() && end->first.process == process) {
    leave(*end->second.connection, end->second.side);
    end = absent_.erase(end);
  }
  std::erase_if(absent_queues_, [&](const auto& each) { return each.first.first == process; });
}

// They have called exec(), or this driver has refused them, or they stand still.
void Driver::give_up_absent() {
  for (const auto& [name, end] : std::exchange(absent_, {})) leave(*end.connection, end.side);
  absent_queues_.clear();
}

// A process has each name once: by it and their sockets the records tell its ends apart.
bool Driver::has_session(const Process& process, std::optional<std::uint64_t> name) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& each) {
    const auto session = each.lock();
    if (!session || session->peer.process() != process) return false;
    return !name || (session->is_open() && session->name == *name);
  });
}

Driver::Answer Driver::resume(const std::shared_ptr<Session>& session,
                              const ControlRequest& request, const std::vector<Given>& given) {
  Answer answer;
  auto& error = answer.reply.error;
  if (request.number != kControlVersion) {
    error = EPROTONOSUPPORT;
  } else if (session->is_open()) {
    error = EISCONN;
  } else if (given.size() != 3) {
    error = EINVAL;
  } else if (has_session(session->peer.process(), request.sizes[0])) {
    error = EEXIST;
  } else {
    const auto batch =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(request.sizes[1], kQueueDepth));
    const auto kept = absent_queues_.find({session->peer.process(), request.sizes[0]});
    error = session->resume_queues({given[0]->get(), given[1]->get(), given[2]->get()},
                                   std::max(settings_.queues, most_queues()), batch, pool_,
                                   kept == absent_queues_.end() ? nullptr : &kept->second.queues);
    if (error == 0 && kept != absent_queues_.end()) kept->second.place.reset();
  }
  if (error != 0) return answer;
  session->name = request.sizes[0];
  session->reserve(request.socket.number, request.socket.generation);
  take_back_unheard(*session);
  answer.reply.number = session->lanes();
  return answer;
}

std::int32_t Driver::restore_socket(const std::shared_ptr<Session>& session,
                                    const ControlRequest& request) {
  if (request.number != AF_INET && request.number != AF_INET6) return EAFNOSUPPORT;
  // The place of a socket that is an end of a connection is kept.
  const auto end = find_absent(*session, request.socket);
  const auto socket = session->restore_socket(request.socket, end != absent_.end());
  if (!socket) {
    session->hold(request.socket.number);
    return EMFILE;
  }
  if (end != absent_.end()) end->second.place.reset();
  socket->family = static_cast<std::uint16_t>(request.number);
  socket->local.family = socket->family;
  socket->out->set_sender({session, socket->id}, session->container->id);
  return buffer_sizes(*socket, request);
}

std::int32_t Driver::take_rings(Session& session, Socket& socket, const std::vector<Given>& given) {
  if (socket.state != Socket::State::kActive || socket.rings[0] || given.size() != 2) return EINVAL;
  std::shared_ptr<Ring> rings[2];
  int error = 0;
  const auto end = find_absent(session, socket.id);
  for (std::size_t side = 0; side < 2; ++side) {
    std::optional<Share>* kept = end == absent_.end() ? nullptr : &end->second.rings[side];
    rings[side] = pool_.adopt(given[side]->get(), session.accounts(), kept, &error);
    if (!rings[side]) return error;
  }
  std::move(rings, rings + 2, socket.rings);
  socket.out->set_send_ring(socket.rings[0]);
  return 0;
}

Driver::AllAbsent::iterator Driver::find_absent(const Session& session, SocketId socket) {
  return absent_.find({session.peer.process(), session.name, socket, false});
}

std::optional<Driver::Absent> Driver::take_absent(const Session& session, SocketId socket) {
  const auto found = find_absent(session, socket);
  if (found == absent_.end()) return std::nullopt;
  Absent end = std::move(found->second);
  absent_.erase(found);
  return end;
}

std::int32_t Driver::rejoin(const std::shared_ptr<Session>& session, Socket& socket,
                            const ControlRequest& request) {
  const auto end = take_absent(*session, socket.id);
  if (!end) return ENOTCONN;
  const auto& connection = end->connection;
  const int side = end->side;
  Stream &out = *connection->streams[side], &in = *connection->streams[1 - side];
  if (socket.state != Socket::State::kActive || !socket.rings[0] ||
      !out.take_sender(*socket.out, request.count, request.sizes[0], request.number) ||
      !in.set_receive_ring(socket.rings[1], request.sizes[1])) {
    leave(*connection, side);
    return EINVAL;
  }
  connection->containers[side] = session->container;
  in.set_receiver({session, socket.id});
  session->connect(socket, connection, side);
  if (!access_.allows(connection->addresses[0], connection->addresses[1])) {
    for (const auto& stream : connection->streams) stream->reset();
  }
  if (in.has_more()) move({{connection, 1 - side}});
  tell_both(out);
  return 0;
}

void Driver::take_waiting(const std::shared_ptr<Session>& session, Socket& listener) {
  const auto [first, last] =
      absent_.equal_range({session->peer.process(), session->name, listener.id, true});
  for (auto end = first; end != last; ++end) session->enqueue(listener, end->second.connection);
  absent_.erase(first, last);
}

// An answer to pd_accept() that the program has not got leaves the connection in the backlog, as the first. So the
// program has no end of a generation that it does not know, when it is given the next ones.
void Driver::take_back_unheard(const Session& session) {
  const Process process = session.peer.process();
  auto each = absent_.lower_bound({process, session.name, {}, false});
  while (each != absent_.end() && each->first.process == process &&
         each->first.session == session.name) {
    const auto end = each++;
    const AbsentName& name = end->first;
    if (name.waits || end->second.side == 0 || session.knows(name.socket.generation)) continue;
    auto taken = absent_.extract(end);
    connections_.write(*taken.mapped().connection,
                       [](ConnectionRecord& record) { record.ends[1].state = EndRecord::kWaits; });
    for (auto& ring : taken.mapped().rings) ring.reset();
    taken.key().socket = taken.mapped().listener;
    taken.key().waits = true;
    const auto first = absent_.lower_bound(taken.key());
    absent_.insert(first, std::move(taken));
  }
}

// What the program has not claimed it does not have, but for what its pd_connect() asks for again.
void Driver::resumed(const std::shared_ptr<Session>& session) {
  session->release_reserved();
  const Process process = session->peer.process();
  auto each = absent_.lower_bound({process, session->name, {}, false});
  while (each != absent_.end() && each->first.process == process &&
         each->first.session == session->name) {
    const auto& [name, end] = *each;
    if (!name.waits && session->find(name.socket)) {
      ++each;
      continue;
    }
    for (const auto& stream : end.connection->streams) {
      if (name.waits) stream->reset();
    }
    leave(*end.connection, end.side);
    each = absent_.erase(each);
  }
  absent_queues_.erase({process, session->name});
}

}  // namespace ferry::pipe
