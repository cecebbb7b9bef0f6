#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "pipe/library/program.h"
#include "pipe/library/socket.h"

// What the entry points share.
namespace ferry::pd {

inline int fail(int error) {
  errno = error;
  return -1;
}

// The program and one of its sockets; errno is set where there is none.
struct Call {
  explicit Call(int sid) : program(Program::get()) {
    if (program == nullptr) {
      errno = is_child() ? EBADF : ENODEV;
    } else if (program->is_over()) {
      errno = ENODEV;
    } else {
      socket = program->find(sid);
      if (socket == nullptr) errno = EBADF;
    }
    if (socket != nullptr) generation_ = socket->generation;
  }
  explicit operator bool() const { return socket != nullptr; }
  // The socket, locked. Nothing, and errno is EBADF: it was closed meanwhile, and its number may be another's.
  std::unique_lock<std::mutex> lock() const;

  // The parent had sockets.
  static bool is_child();

  Program* const program;
  Socket* socket = nullptr;

 private:
  std::uint32_t generation_ = 0;
};

// The socket that this thread has made, connected or accepted last (pd_malloc).
void set_current(int sid);
int current();

// The caller has the socket's mutex in all that follows.

// Where its bytes are. 0 or errno.
int map_rings(Program& program, Socket& socket);
// A connection that is being made over TCP may be there now. 0, EAGAIN, or why there is none.
int finish_connecting(Socket& socket);
// It gets what there is for it, up to `length` bytes, of which there is at least one. 0, or errno: EAGAIN where there
// is nothing.
int receive_by_tcp(Socket& socket, std::size_t length);
// From here on a descriptor of the kernel's tells of it; until it has none any more.
void announce_descriptor(Socket& socket);
void forget_descriptor(Socket& socket);

}  // namespace ferry::pd
