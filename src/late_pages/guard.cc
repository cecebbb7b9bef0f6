#include "late_pages/guard.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "late_pages/probe.h"

namespace ferry::late_pages {
namespace {

constexpr std::chrono::milliseconds kPause{20};  // between looks whether the program is gone
constexpr char kChild = 'c', kDone = 'd';
constexpr std::size_t kFewChildren = 16;

// A message with one byte, and with room for a descriptor.
struct Message {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

void send(int socket, Message* message) {
  while (::sendmsg(socket, &message->header, MSG_NOSIGNAL) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return;
    if (errno != EINTR) throw std::runtime_error(std::string("no guard: ") + std::strerror(errno));
  }
}

UniqueFd open_process(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(const UniqueFd& pidfd) {
  pollfd end{pidfd.get(), POLLIN, 0};
  return ::poll(&end, 1, 0) > 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> all;
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) all.push_back(child);
  }
  return all;
}

}  // namespace

void send_descriptor(int socket, int descriptor) {
  Message message;
  message.byte = kChild;
  cmsghdr* header = CMSG_FIRSTHDR(&message.header);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  send(socket, &message);
}

void send_done(int socket) {
  Message message;
  message.byte = kDone;
  message.header.msg_control = nullptr;
  message.header.msg_controllen = 0;
  send(socket, &message);
}

void wait_for_guard(int socket) {
  char nothing = 0;
  while (::recv(socket, &nothing, 1, 0) < 0 && errno == EINTR) {
  }
}

Guard::Guard(UniqueFd filler, std::vector<UniqueFd> userfaultfds, std::vector<Guarded> processes)
    : filler_(std::move(filler)),
      userfaultfds_(std::move(userfaultfds)),
      processes_(std::move(processes)) {}

Guard::Heard Guard::receive() {
  Message message;
  ssize_t received = 0;
  do {
    received = ::recvmsg(filler_.get(), &message.header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) return Heard::kEnd;
  if (message.byte == kDone) return Heard::kDone;
  const cmsghdr* header = CMSG_FIRSTHDR(&message.header);
  // Without a descriptor (this process has too many) the child is not guarded: the filler alone has its userfaultfd.
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return Heard::kChild;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  of_children_.emplace_back(descriptor);
  if (of_children_.size() < look_at_) return Heard::kChild;
  std::erase_if(of_children_, [](const UniqueFd& userfaultfd) {
    return probe(userfaultfd.get(), kAnywhere) == Probed::kNoMemory;
  });
  look_at_ = 2 * of_children_.size() + kFewChildren;
  return Heard::kChild;
}

// A child may have been made by a process that was about to be killed.
void Guard::add_children() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (has_ended(processes_[i].pidfd)) continue;
    for (const pid_t child : children_of(processes_[i].pid)) {
      const bool is_known = std::any_of(processes_.begin(), processes_.end(),
                                        [&](const Guarded& known) { return known.pid == child; });
      UniqueFd pidfd = open_process(child);
      if (!is_known && pidfd) processes_.push_back({child, std::move(pidfd)});
    }
  }
}

bool Guard::watch() {
  for (;;) {
    const Heard heard = receive();
    if (heard == Heard::kDone) return true;
    if (heard == Heard::kEnd) break;
  }
  for (bool is_over = false; !is_over;) {
    add_children();
    for (const auto& process : processes_) {
      ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0);
    }
    std::this_thread::sleep_for(kPause);
    is_over = std::all_of(processes_.begin(), processes_.end(),
                          [](const Guarded& process) { return has_ended(process.pidfd); });
  }
  // Who reads the memory of these by way of /proc may go on.
  userfaultfds_.clear();
  return false;
}

void Guard::wait_for_children() {
  const auto has_memory = [](const UniqueFd& userfaultfd) {
    return probe(userfaultfd.get(), kAnywhere) != Probed::kNoMemory;
  };
  while (std::any_of(of_children_.begin(), of_children_.end(), has_memory)) {
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace ferry::late_pages
