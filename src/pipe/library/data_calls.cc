// The entry points by which bytes are sent and received, and what their buffers are.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "ferry/pd.h"
#include "pipe/library/call.h"
#include "pipe/library/waiter.h"

namespace ferry::pd {
namespace {

// The driver hears of so large a part of a ring that is free again, or when there is nothing to read.
constexpr std::size_t kPartsOfRing = 8;

using BlockEntry = std::map<std::uint64_t, Socket::Block>::value_type;

// The block with all of these bytes, or null.
BlockEntry* find_block(Socket& socket, const void* address, std::size_t length) {
  if (!socket.send_ring.holds(address)) return nullptr;
  const auto offset =
      static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - socket.send_ring.base());
  auto block = socket.blocks.upper_bound(offset);
  if (block == socket.blocks.begin()) return nullptr;
  --block;
  const std::uint64_t within = offset - block->first;
  if (within >= block->second.size || length > block->second.size - within) return nullptr;
  return &*block;
}

// 0, or errno: the socket is not one that sends or receives now.
int check_connected(Socket& socket) {
  switch (socket.kind) {
    case Socket::Kind::kPipe:
    case Socket::Kind::kTcp: return 0;
    case Socket::Kind::kConnecting: return finish_connecting(socket);
    default: return ENOTCONN;
  }
}

ssize_t submit_send(Program& program, Socket& socket, BlockEntry& block, const void* buffer,
                    std::size_t length) {
  const auto offset =
      static_cast<std::uint64_t>(static_cast<const std::byte*>(buffer) - socket.send_ring.base());
  std::size_t submitted = 0;
  // Entries of a socket stay in order because they are in the same queue.
  if (socket.under_way() == 0) socket.lane = program.lane();
  while (submitted < length) {
    if (socket.under_way() >= Socket::kMostSends) {
      program.reap();
      if (socket.under_way() >= Socket::kMostSends) break;
    }
    const auto piece =
        static_cast<std::uint32_t>(std::min<std::size_t>(length - submitted, pipe::kLongestEntry));
    const std::uint64_t number = ++socket.sent;  // before its completion can come
    if (socket.log.empty()) socket.log.resize(Socket::kMostSends);
    socket.sent_bytes += piece;
    socket.logged(number) = {offset + submitted, socket.sent_bytes, piece, block.second.index};
    const pipe::Entry entry = socket.entry_of(socket.logged(number), number);
    block.second.last_send = number;
    // No event would tell that a queue has room again, so that this is no EAGAIN.
    while (!program.submit(socket, entry)) {
      if (!program.await_driver()) return fail(ENODEV);
    }
    submitted += piece;
  }
  program.ring(submitted < length);
  if (submitted == 0) return fail(EAGAIN);
  return static_cast<ssize_t>(submitted);
}

ssize_t try_send(const Call& call, const void* buffer, std::size_t length) {
  Program& program = *call.program;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (const int error = check_connected(socket)) return fail(error);
  if (socket.write_shut) return fail(EPIPE);
  BlockEntry* block = find_block(socket, buffer, length);
  if (block == nullptr) return fail(EFAULT);
  if (length == 0) return 0;
  if (socket.kind == Socket::Kind::kTcp) {
    return ::send(socket.tcp.get(), buffer, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  const std::uint16_t flags = socket.flags;
  if ((flags & pipe::kReset) != 0) return fail(ECONNRESET);
  if ((flags & pipe::kReadClosed) != 0) return fail(EPIPE);
  return submit_send(program, socket, *block, buffer, length);
}

// Tells the driver what has been read, once there is enough of it.
void tell_read(Program& program, Socket& socket, bool all) {
  const std::uint64_t news = socket.given_back - socket.told;
  if (socket.kind != Socket::Kind::kPipe || news == 0) return;
  if (!all && news < socket.receive_ring.size() / kPartsOfRing) return;
  pipe::Entry entry;
  entry.type = pipe::EntryType::kReceiveDone;
  entry.source = socket.given_back;
  entry.connection = static_cast<std::uint16_t>(socket.id.number);
  entry.table = pipe::Table::kReceive;
  entry.generation = socket.id.generation;
  // A full queue: the driver is about to take some. The peer may wait for this.
  while (!program.submit(socket, entry)) {
    if (!program.await_driver()) return;
  }
  socket.told = socket.given_back;
  program.ring(all);
}

ssize_t receive(Program& program, Socket& socket, std::size_t length, void** buffer) {
  *buffer = nullptr;
  if (const int error = check_connected(socket)) return fail(error);
  if (length == 0 || socket.read_shut) return 0;
  if (socket.received == socket.handed) {
    if (socket.kind == Socket::Kind::kTcp) {
      if (const int error = receive_by_tcp(socket, length)) return fail(error);
    } else {
      program.reap();
    }
  }
  // In this order: what has come before the end is there when the end is.
  const std::uint16_t flags = socket.flags;
  const std::uint64_t available = socket.received - socket.handed;
  if (available == 0) {
    if ((flags & pipe::kReset) != 0) return fail(ECONNRESET);
    if ((flags & pipe::kEnd) != 0) return 0;
    tell_read(program, socket, true);
    program.ring(true);
    return fail(EAGAIN);
  }
  length = std::min<std::size_t>(length, available);
  *buffer = socket.receive_ring.base() + socket.handed % socket.receive_ring.size();
  socket.handed += length;
  return static_cast<ssize_t>(length);
}

ssize_t try_receive(const Call& call, std::size_t length, void** buffer) {
  const auto lock = call.lock();
  if (!lock) return -1;
  return receive(*call.program, *call.socket, length, buffer);
}

ssize_t try_receive_into(const Call& call, void* buffer, std::size_t length) {
  Program& program = *call.program;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (socket.kind != Socket::Kind::kListening && socket.handed != socket.given_back)
    return fail(EBUSY);
  void* from = nullptr;
  const ssize_t got = receive(program, socket, length, &from);
  if (got <= 0) return got;
  std::memcpy(buffer, from, static_cast<std::size_t>(got));
  socket.given_back += static_cast<std::uint64_t>(got);
  tell_read(program, socket, false);
  return got;
}

// How many of the buffers can be written, which come first then.
int refresh(const Call& call, void** buffers, int count) {
  Program& program = *call.program;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (count < 0) return fail(EINVAL);
  if (std::any_of(buffers, buffers + count,
                  [&](void* each) { return find_block(socket, each, 0) == nullptr; })) {
    return fail(EFAULT);
  }
  const auto is_free = [&](void* each) {
    return find_block(socket, each, 0)->second.last_send <= socket.done ||
           (socket.flags & pipe::kReset) != 0;
  };
  if (!std::all_of(buffers, buffers + count, is_free)) program.reap();
  const auto middle = std::stable_partition(buffers, buffers + count, is_free);
  if (middle != buffers + count) program.ring(true);
  return static_cast<int>(middle - buffers);
}

}  // namespace
}  // namespace ferry::pd

using namespace ferry;
using namespace ferry::pd;

extern "C" {

void* pd_malloc_for(int sid, size_t size) {
  const Call call(sid);
  if (!call) return nullptr;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return nullptr;
  if (size == 0 || socket.kind == Socket::Kind::kListening) {
    errno = EINVAL;
    return nullptr;
  }
  int error = map_rings(*call.program, socket);
  pipe::ControlRequest request;
  pipe::ControlReply reply;
  request.call = pipe::Call::kAllocate;
  request.socket = socket.id;
  request.sizes[0] = size;
  if (error == 0) error = call.program->ask(request, &reply);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  call.program->add_block(socket, reply.sizes[0], {size, reply.number, 0});
  return socket.send_ring.base() + reply.sizes[0];
}

void* pd_malloc(size_t size) {
  return pd_malloc_for(current(), size);
}

int pd_free(void* buf) {
  Program* program = Program::get();
  if (program == nullptr) return fail(ENODEV);
  Socket* socket = program->find_by_address(buf);
  if (socket == nullptr) return fail(EFAULT);
  const std::lock_guard lock(socket->mutex);
  const BlockEntry* block = find_block(*socket, buf, 0);
  if (!socket->is_open() || block == nullptr || socket->send_ring.base() + block->first != buf)
    return fail(EFAULT);
  pipe::ControlRequest request;
  pipe::ControlReply reply;
  request.call = pipe::Call::kFree;
  request.socket = socket->id;
  request.number = block->second.index;
  program->settle(*socket);
  const int error = program->ask(request, &reply);
  socket->free_block(block->first);
  return error == 0 ? 0 : fail(error);
}

ssize_t pd_send(int sid, const void* sendbuf, size_t buflen) {
  const Call call(sid);
  return call ? try_send(call, sendbuf, buflen) : -1;
}

ssize_t pd_send_timed(int sid, const void* sendbuf, size_t buflen, int timeout) {
  const Call call(sid);
  if (!call) return -1;
  std::size_t sent = 0;
  const ssize_t done = repeat(*call.program, *call.socket, timeout, POLLOUT, [&]() -> ssize_t {
    const ssize_t more =
        try_send(call, static_cast<const std::byte*>(sendbuf) + sent, buflen - sent);
    if (more < 0) return -1;
    sent += static_cast<std::size_t>(more);
    return sent == buflen ? static_cast<ssize_t>(sent) : fail(EAGAIN);
  });
  return done < 0 && sent != 0 ? static_cast<ssize_t>(sent) : done;
}

int pd_buf_refresh(int sid, void** ptrs, int ptrlen) {
  const Call call(sid);
  return call ? refresh(call, ptrs, ptrlen) : -1;
}

int pd_buf_refresh_timed(int sid, void** ptrs, int ptrlen, int timeout) {
  const Call call(sid);
  if (!call) return -1;
  int some = 0;
  const int all = repeat(*call.program, *call.socket, timeout, POLLOUT, [&] {
    some = refresh(call, ptrs, ptrlen);
    return some < 0 || some == ptrlen ? some : fail(EAGAIN);
  });
  return all < 0 && errno == EAGAIN && some > 0 ? some : all;
}

ssize_t pd_recv(int sid, size_t buflen, void** recvbuf) {
  const Call call(sid);
  return call ? try_receive(call, buflen, recvbuf) : -1;
}

ssize_t pd_recv_timed(int sid, size_t buflen, void** recvbuf, int timeout) {
  const Call call(sid);
  if (!call) return -1;
  return repeat(*call.program, *call.socket, timeout, POLLIN,
                [&] { return try_receive(call, buflen, recvbuf); });
}

int pd_recv_done(int sid, size_t buflen) {
  const Call call(sid);
  if (!call) return -1;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  if (const int error = check_connected(socket)) return fail(error);
  if (buflen > socket.handed - socket.given_back) return fail(EINVAL);
  socket.given_back += buflen;
  tell_read(*call.program, socket, false);
  return 0;
}

ssize_t pd_recv_into(int sid, void* buf, size_t buflen) {
  const Call call(sid);
  return call ? try_receive_into(call, buf, buflen) : -1;
}

ssize_t pd_recv_into_timed(int sid, void* buf, size_t buflen, int timeout) {
  const Call call(sid);
  if (!call) return -1;
  return repeat(*call.program, *call.socket, timeout, POLLIN,
                [&] { return try_receive_into(call, buf, buflen); });
}

}  // extern "C"
