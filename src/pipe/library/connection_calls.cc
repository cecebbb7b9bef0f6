// The entry points by which sockets are made, connected and closed.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ferry/pd.h"
#include "pipe/library/addresses.h"
#include "pipe/library/call.h"
#include "pipe/library/epoll.h"
#include "pipe/library/waiter.h"

namespace ferry::pd {
namespace {

using pipe::ControlReply;
using pipe::ControlRequest;

ControlRequest request_of(pipe::Call call, const Socket& socket) {
  ControlRequest request;
  request.call = call;
  request.socket = socket.id;
  return request;
}

struct Current {
  std::uint64_t program = 0;
  int sid = -1;
};
thread_local Current current_socket;

// 0, or ENOBUFS: there are no descriptors, or there is no room to map them.
int take_rings(Socket& socket, const ControlReply& reply, std::vector<UniqueFd>& rings) {
  if (rings.size() != 2) return ENOBUFS;
  Mapping send(rings[0].get(), reply.sizes[0], 1), receive(rings[1].get(), reply.sizes[1], 2);
  if (!send || !receive) return ENOBUFS;
  socket.send_ring = std::move(send);
  socket.receive_ring = std::move(receive);
  std::move(rings.begin(), rings.end(), socket.ring_memory);
  return 0;
}

// The process that has called pd_init() last.
std::atomic<pid_t> initialized_by{0};

UniqueFd make_tcp(std::uint16_t family) {
  UniqueFd tcp(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  const int on = 1;
  if (family == AF_INET6) ::setsockopt(tcp.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  ::setsockopt(tcp.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return tcp;
}

// Closes the socket in the driver, and gives its number back: at once, or when all that it has sent is done. The caller
// has its mutex.
int close_one(Program& program, Socket& socket) {
  ControlReply reply;
  program.settle(socket);
  socket.stop_listening();
  forget_descriptor(socket);
  if (socket.kind == Socket::Kind::kPipe) program.reap();
  const bool is_gone = (socket.flags & (pipe::kReset | pipe::kReadClosed)) != 0;
  if (socket.kind == Socket::Kind::kPipe && socket.under_way() != 0 && !is_gone &&
      program.ask(request_of(pipe::Call::kEnd, socket), &reply) == 0) {
    program.close_later(socket);
    return 0;
  }
  const auto clear = [&] {
    socket.kind = Socket::Kind::kClosed;
    socket.wake_watches();
    program.clear(socket);
  };
  const int error = program.ask(request_of(pipe::Call::kClose, socket), &reply, nullptr, -1, clear);
  if (error != 0) clear();
  return error == EBADF ? 0 : error;  // it could not be restored
}

// And the connection that it has for the next pd_accept(), of which nobody knows.
int close_socket(Program& program, Socket& socket, std::unique_lock<std::mutex> lock) {
  Socket* const accepted = std::exchange(socket.accepted, nullptr);
  const int error = close_one(program, socket);
  lock.unlock();
  if (accepted != nullptr) {
    const std::lock_guard held(accepted->mutex);
    close_one(program, *accepted);
  }
  return error;
}

int try_connect(const Call& call, const pipe::SocketAddress& to) {
  Program& program = *call.program;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return errno;
  switch (socket.kind) {
    case Socket::Kind::kFresh: break;
    case Socket::Kind::kListening: return EOPNOTSUPP;
    case Socket::Kind::kConnecting: {
      const int error = finish_connecting(socket);
      return error == EAGAIN ? EALREADY : error;
    }
    default: return EISCONN;
  }
  if (const int error = map_rings(program, socket)) return error;
  ControlRequest request = request_of(pipe::Call::kConnect, socket);
  request.address = to;
  ControlReply reply;
  const int error = program.ask(request, &reply);
  if (error == 0) {
    socket.local = reply.local;
    socket.peer = reply.peer;
    socket.joined = true;
    socket.kind = Socket::Kind::kPipe;
    socket.wake_watches();
    return 0;
  }
  if (error != pipe::kForeign) return error;
  if (!socket.tcp) socket.tcp = make_tcp(socket.family);
  if (!socket.tcp) return errno;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  write_address(to, reinterpret_cast<sockaddr*>(&address), &size);
  const int done = ::connect(socket.tcp.get(), reinterpret_cast<const sockaddr*>(&address), size);
  const int why = done == 0 ? 0 : errno;
  if (why != 0 && why != EINPROGRESS) {
    socket.tcp.reset();
    return why;
  }
  socket.peer = to;
  socket.kind = why == 0 ? Socket::Kind::kTcp : Socket::Kind::kConnecting;
  announce_descriptor(socket);
  return why;
}

int begin_connecting(const Call& call, int sid, const sockaddr* address, socklen_t size) {
  pipe::SocketAddress to;
  if (const int error = read_address(address, size, call.socket->family, &to)) return fail(error);
  set_current(sid);
  const int error = try_connect(call, to);
  return error == 0 ? 0 : fail(error);
}

// A connection that the kernel has for a listener. Its socket is made first: what finds no room after accept() is lost.
int accept_tcp(Program& program, Socket& listener) {
  pollfd readable{listener.tcp.get(), POLLIN, 0};
  if (::poll(&readable, 1, 0) == 0) return fail(EAGAIN);
  ControlRequest request;
  ControlReply reply;
  request.call = pipe::Call::kSocket;
  request.number = listener.family;
  const auto place = [&] { program.place(reply.socket, listener.family); };
  if (const int error = program.ask(request, &reply, nullptr, -1, place)) return fail(error);
  Socket& socket = program.at(reply.socket);
  std::unique_lock lock(socket.mutex);
  int error = map_rings(program, socket);
  if (error == 0) {
    socket.tcp.reset(::accept4(listener.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    error = socket.tcp ? 0 : errno;
  }
  if (error != 0) {
    close_socket(program, socket, std::move(lock));
    return fail(error == EWOULDBLOCK || error == ECONNABORTED ? EAGAIN : error);
  }
  const int on = 1;
  ::setsockopt(socket.tcp.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  socket.local = address_of(socket.tcp.get(), false);
  socket.peer = address_of(socket.tcp.get(), true);
  socket.kind = Socket::Kind::kTcp;
  return static_cast<int>(socket.id.number);
}

// A connection of the pipe. Where there is no room for its rings, it waits on for the next call.
int accept_pipe(Program& program, Socket& listener) {
  if (listener.accepted == nullptr) {
    ControlReply reply;
    std::vector<UniqueFd> rings;
    const auto place = [&] {
      listener.accepted = program.place(reply.socket, listener.family);
      const std::lock_guard lock(listener.accepted->mutex);
      listener.accepted->local = reply.local;
      listener.accepted->peer = reply.peer;
      listener.accepted->joined = true;
      take_rings(*listener.accepted, reply, rings);
    };
    const int error =
        program.ask(request_of(pipe::Call::kAccept, listener), &reply, &rings, -1, place);
    if (error != 0) return fail(error);
  }
  Socket& socket = *listener.accepted;
  const std::lock_guard lock(socket.mutex);
  if (const int error = map_rings(program, socket)) return fail(error);
  socket.kind = Socket::Kind::kPipe;
  listener.accepted = nullptr;
  ++listener.handed;
  return static_cast<int>(socket.id.number);
}

int try_accept(const Call& call, sockaddr* address, socklen_t* size) {
  Program& program = *call.program;
  Socket& listener = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (listener.kind != Socket::Kind::kListening) return fail(EINVAL);
  if (listener.received == listener.handed) program.reap();
  int sid = -1;
  if (listener.received != listener.handed) {
    sid = accept_pipe(program, listener);
  } else {
    sid = accept_tcp(program, listener);
  }
  if (sid < 0) return -1;
  write_address(program.find(sid)->peer, address, size);
  set_current(sid);
  return sid;
}

}  // namespace

bool Call::is_child() {
  const pid_t by = initialized_by;
  return by != 0 && by != ::getpid();
}

std::unique_lock<std::mutex> Call::lock() const {
  std::unique_lock lock(socket->mutex);
  if (socket->is_open() && socket->generation == generation_) return lock;
  errno = EBADF;
  return {};
}

void set_current(int sid) {
  current_socket = {Program::get()->number, sid};
}

int current() {
  const Program* program = Program::get();
  return program != nullptr && current_socket.program == program->number ? current_socket.sid : -1;
}

int map_rings(Program& program, Socket& socket) {
  if (socket.send_ring) return 0;
  ControlReply reply;
  std::vector<UniqueFd> rings;
  const int error = program.ask(request_of(pipe::Call::kRings, socket), &reply, &rings);
  if (error != 0) return error;
  return take_rings(socket, reply, rings);
}

}  // namespace ferry::pd

using namespace ferry;
using namespace ferry::pd;

extern "C" {

int pd_init(const char* chardev, unsigned sqthresh, unsigned cqthresh) {
  if (Call::is_child()) Epoll::forget_all();
  const int error = Program::open(chardev, sqthresh, cqthresh);
  if (error != 0) return fail(error);
  initialized_by = ::getpid();
  return 0;
}

int pd_release() {
  Epoll::forget_all();
  const int error = Program::close();
  return error == 0 ? 0 : fail(error);
}

int pd_socket(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return fail(EAFNOSUPPORT);
  if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM) return fail(ESOCKTNOSUPPORT);
  if (protocol != 0 && protocol != IPPROTO_TCP) return fail(EPROTONOSUPPORT);
  Program* program = Program::get();
  if (program == nullptr) return fail(ENODEV);
  pipe::ControlRequest request;
  pipe::ControlReply reply;
  request.call = pipe::Call::kSocket;
  request.number = static_cast<std::uint32_t>(domain);
  const auto place = [&] {
    program->place(reply.socket, static_cast<std::uint16_t>(domain))->kind = Socket::Kind::kFresh;
  };
  if (const int error = program->ask(request, &reply, nullptr, -1, place)) return fail(error);
  const int sid = static_cast<int>(reply.socket.number);
  set_current(sid);
  return sid;
}

int pd_bind(int sid, const pd_sock_addr* addr, socklen_t addrlen) {
  const Call call(sid);
  if (!call) return -1;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (socket.kind != Socket::Kind::kFresh || socket.tcp) return fail(EINVAL);
  pipe::SocketAddress address;
  if (const int error = read_address(addr, addrlen, socket.family, &address)) return fail(error);
  UniqueFd tcp = make_tcp(socket.family);
  const int on = 1;
  if (!tcp || ::setsockopt(tcp.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(tcp.get(), addr, addrlen) != 0) {
    return -1;
  }
  auto request = request_of(pipe::Call::kBind, socket);
  request.address = address_of(tcp.get(), false);
  pipe::ControlReply reply;
  if (const int error = call.program->ask(request, &reply, nullptr, tcp.get())) return fail(error);
  socket.local = request.address;
  socket.tcp = std::move(tcp);
  return 0;
}

int pd_listen(int sid, int backlog) {
  const Call call(sid);
  if (!call) return -1;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (socket.kind != Socket::Kind::kFresh && socket.kind != Socket::Kind::kListening)
    return fail(EINVAL);
  if (!socket.tcp) return fail(EDESTADDRREQ);
  const int waiting = std::clamp(backlog, 1, 4096);
  if (::listen(socket.tcp.get(), waiting) != 0) return -1;
  auto request = request_of(pipe::Call::kListen, socket);
  request.number = static_cast<std::uint32_t>(waiting);
  pipe::ControlReply reply;
  if (const int error = call.program->ask(request, &reply)) return fail(error);
  socket.backlog = waiting;
  if (socket.kind.exchange(Socket::Kind::kListening) == Socket::Kind::kFresh) {
    announce_descriptor(socket);
  }
  return 0;
}

int pd_accept(int sid, pd_sock_addr* addr, socklen_t* addrlen) {
  return pd_accept_timed(sid, addr, addrlen, 0);
}

int pd_accept_timed(int sid, pd_sock_addr* addr, socklen_t* addrlen, int timeout) {
  const Call call(sid);
  if (!call) return -1;
  return repeat(*call.program, *call.socket, timeout, POLLIN,
                [&] { return try_accept(call, addr, addrlen); });
}

int pd_connect(int sid, const pd_sock_addr* addr, socklen_t addrlen) {
  const Call call(sid);
  return call ? begin_connecting(call, sid, addr, addrlen) : -1;
}

int pd_connect_timed(int sid, const pd_sock_addr* addr, socklen_t addrlen, int timeout) {
  const Call call(sid);
  if (!call) return -1;
  if (begin_connecting(call, sid, addr, addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return -1;
  const int done = repeat(*call.program, *call.socket, timeout, POLLOUT, [&] {
    const auto lock = call.lock();
    if (!lock) return -1;
    const int error = finish_connecting(*call.socket);
    return error == 0 ? 0 : fail(error);
  });
  if (done != 0 && errno == EAGAIN) errno = ETIMEDOUT;
  return done;
}

int pd_shutdown(int sid, int how) {
  const Call call(sid);
  if (!call) return -1;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail(EINVAL);
  if (socket.kind == Socket::Kind::kTcp) {
    if (::shutdown(socket.tcp.get(), how) != 0) return -1;
  } else if (socket.kind == Socket::Kind::kPipe) {
    auto request = request_of(pipe::Call::kShutdown, socket);
    request.number = static_cast<std::uint32_t>(how);
    call.program->settle(socket);
    pipe::ControlReply reply;
    if (const int error = call.program->ask(request, &reply)) return fail(error);
  } else {
    return fail(ENOTCONN);
  }
  if (how != SHUT_RD) socket.write_shut = true;
  if (how != SHUT_WR) socket.read_shut = true;
  return 0;
}

int pd_close(int sid) {
  const Call call(sid);
  if (!call) return -1;
  auto lock = call.lock();
  if (!lock) return -1;
  const int error = close_socket(*call.program, *call.socket, std::move(lock));
  return error == 0 ? 0 : fail(error);
}

int pd_getsockname(int sid, pd_sock_addr* addr, socklen_t* addrlen) {
  const Call call(sid);
  if (!call) return -1;
  const auto lock = call.lock();
  if (!lock) return -1;
  const bool is_tcp = call.socket->kind == Socket::Kind::kTcp;
  write_address(is_tcp ? address_of(call.socket->tcp.get(), false) : call.socket->local, addr,
                addrlen);
  return 0;
}

int pd_getpeername(int sid, pd_sock_addr* addr, socklen_t* addrlen) {
  const Call call(sid);
  if (!call) return -1;
  const auto lock = call.lock();
  if (!lock) return -1;
  const Socket::Kind kind = call.socket->kind;
  if (kind != Socket::Kind::kPipe && kind != Socket::Kind::kTcp) return fail(ENOTCONN);
  write_address(call.socket->peer, addr, addrlen);
  return 0;
}

}  // extern "C"
