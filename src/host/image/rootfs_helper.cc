#include "host/image/rootfs_helper.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/subprocess.h"
#include "rootfs/frames.h"

namespace ferry::host {

RootfsHelper::RootfsHelper(const std::string& program, Task task, const std::string& folder,
                           const std::string& log)
    : folder_(folder), log_(log) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Failure(fmt::format("cannot make a socket: {}", error_text(errno)));
  }
  socket_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  Command command{{program, task == Task::kPack ? "pack" : "unpack", folder}, {}, {}};
  command.descriptors = {theirs.get()};
  pid_ = start(command, log_);
  if (pid_ < 0) throw Failure(fmt::format("cannot start {}: {}", program, error_text(-pid_)));
}

RootfsHelper::~RootfsHelper() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  wait_for(pid_);
}

// Called when the helper has failed: gives the errno that it has ended with.
int RootfsHelper::end() {
  if (pid_ < 0) return EPIPE;
  socket_.reset();
  const int status = wait_for(pid_);
  pid_ = -1;
  std::string why;
  std::ifstream log(log_);
  for (std::string line; std::getline(log, line);) why = line;
  log::warn("{}: {}", folder_, printable(why));
  return status == 0 ? EPIPE : status;
}

void RootfsHelper::pack(const std::set<std::string>& anyway, const Sink& sink) {
  try {
    std::string names;
    for (const auto& name : anyway) names += name + '\0';
    rootfs::send_frame(socket_.get(), std::as_bytes(std::span(names)));
    rootfs::end_message(socket_.get());
    for (std::vector<std::byte> piece; rootfs::receive_frame(socket_.get(), &piece);) sink(piece);
  } catch (const rootfs::Error&) {
    const int error = end();
    throw Failure(
        fmt::format("cannot read the root filesystem in {}: {}", folder_, error_text(error)));
  }
}

int RootfsHelper::unpack(std::span<const std::byte> piece) {
  try {
    rootfs::send_frame(socket_.get(), piece);
    return 0;
  } catch (const rootfs::Error&) {
    return end();
  }
}

int RootfsHelper::end_archive() {
  try {
    rootfs::end_message(socket_.get());
    std::vector<std::byte> answer;
    return rootfs::receive_frame(socket_.get(), &answer) ? EBADMSG : 0;
  } catch (const rootfs::Error&) {
    return end();
  }
}

}  // namespace ferry::host
