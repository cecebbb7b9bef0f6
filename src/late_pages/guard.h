#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::late_pages {

// A process to be killed when its pages are lost.
struct Guarded {
  pid_t pid = 0;
  UniqueFd pidfd;  // of the process that had this pid when it was restored
};

// Holds duplicates of the filler's userfaultfds: the kernel gives a process empty pages, in place of those that it
// lacks, when the last one is closed. If the filler is killed, the guard kills the program, and closes its duplicates
// when the program has ended.
class Guard {
 public:
  // `filler`: a socket, at whose other end the filler calls send_descriptor() for the userfaultfds of children of the
  // program, and send_done(). It ends with the filler. `userfaultfds`: of the processes, in their order.
  Guard(UniqueFd filler, std::vector<UniqueFd> userfaultfds, std::vector<Guarded> processes);
  // Returns when the filler has ended: true: all pages are there. False: the processes have been killed.
  bool watch();
  // After that: returns when the children are gone as well.
  void wait_for_children();

 private:
  enum class Heard { kChild, kDone, kEnd };
  Heard receive();
  void add_children();

  const UniqueFd filler_;  // closed last: the filler waits for that
  std::vector<UniqueFd> userfaultfds_, of_children_;
  std::size_t look_at_ = 0;  // so many children: look which of them have ended
  std::vector<Guarded> processes_;
};

// Throw std::runtime_error, but not when the guard has been killed: then nobody hears.
void send_descriptor(int socket, int descriptor);
void send_done(int socket);
// Returns when the guard has closed its userfaultfds, and has ended.
void wait_for_guard(int socket);

}  // namespace ferry::late_pages
