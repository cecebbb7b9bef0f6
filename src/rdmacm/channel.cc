#include "rdmacm/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ferry::rdmacm {
namespace {

// Does not call fstat(), which this library interposes for these descriptors.
bool identity(int descriptor, std::uint64_t* device, std::uint64_t* inode) {
  struct stat status;
  if (::syscall(SYS_newfstatat, descriptor, "", &status, AT_EMPTY_PATH) != 0) return false;
  *device = status.st_dev;
  *inode = status.st_ino;
  return true;
}

}  // namespace

Channel::~Channel() {
  if (write_end_ >= 0 && waiting_ == 0) ::close(write_end_);
}

int Channel::open(bool close_on_exec) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  read_end_ = ends[0];
  write_end_ = ends[1];
  ::fcntl(write_end_, F_SETFL, O_NONBLOCK);
  if (!close_on_exec) ::fcntl(read_end_, F_SETFD, 0);
  return identity(read_end_, &device_, &inode_) ? 0 : errno;
}

bool Channel::is_mine(int descriptor) const {
  std::uint64_t device = 0, inode = 0;
  return identity(descriptor, &device, &inode) && device == device_ && inode == inode_;
}

bool Channel::is_abandoned() const {
  pollfd end{write_end_, 0, 0};
  return ::poll(&end, 1, 0) == 1 && (end.revents & POLLERR) != 0;
}

void Channel::restored() {
  identity(read_end_, &device_, &inode_);
}

void Channel::push(const QueuedEvent& event) {
  events_.push_back(event);
  if (stale_bytes_ > 0) {
    --stale_bytes_;
    return;
  }
  // When the pipe is full (65536 events), the event is dropped: the program sees that others wait.
  const char byte = 0;
  if (::write(write_end_, &byte, 1) != 1) events_.pop_back();
}

bool Channel::pop(QueuedEvent* out) {
  if (events_.empty()) {
    if (stale_bytes_ > 0) --stale_bytes_;
    return false;
  }
  *out = events_.front();
  events_.pop_front();
  return true;
}

}  // namespace ferry::rdmacm
