#include "tracked_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "agent/userfaultfd.h"

namespace ferry::precopy::test {

struct TrackedProcess::Shared {
  std::atomic<unsigned long> wanted{0}, done{0}, argument{0}, result{0};
};

namespace {

void send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ::sendmsg(socket, &message, 0);
}

int receive_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, 0) < 0 || CMSG_FIRSTHDR(&message) == nullptr) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

}  // namespace

TrackedProcess::TrackedProcess(std::function<unsigned long(unsigned long)> body) {
  void* map = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared_ = new (map) Shared;
  int sockets[2];
  ::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    const int made = agent::make_userfaultfd(device);
    send_descriptor(sockets[1], made);
    if (made >= 0) ::close(made);
    for (unsigned long step = 1;; ++step) {
      while (shared_->wanted < step) ::sched_yield();
      shared_->result = body(shared_->argument);
      shared_->done = step;
    }
  }
  ::close(sockets[1]);
  userfaultfd_ = receive_descriptor(sockets[0]);
  ::close(sockets[0]);
}

TrackedProcess::~TrackedProcess() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::munmap(shared_, 4096);
}

void TrackedProcess::begin(unsigned long argument) {
  shared_->argument = argument;
  ++shared_->wanted;
}

unsigned long TrackedProcess::step(unsigned long argument) {
  begin(argument);
  while (shared_->done < shared_->wanted) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid != 0) {
      std::abort();  // what it was told killed it
    }
    ::sched_yield();
  }
  return shared_->result;
}

void TrackedProcess::halt() const {
  ::kill(pid_, SIGSTOP);
  ::waitpid(pid_, nullptr, WUNTRACED);
}

}  // namespace ferry::precopy::test
