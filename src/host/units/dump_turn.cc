#include "host/units/dump_turn.h"

#include <unistd.h>

#include <chrono>

#include "base/failure.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kLimit{25};  // CRIU's plugin waits for 30 s

}  // namespace

DumpTurns::Turn DumpTurns::take(pid_t root) {
  const std::uint64_t mounts = namespace_inode(root, "mnt");
  // A tree in a mount namespace of its own has a /proc that fits.
  if (mounts != namespace_inode(::getpid(), "mnt") ||
      namespace_inode(root, "pid") == namespace_inode(::getpid(), "pid")) {
    return nullptr;
  }
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kLimit, [&] { return !taken_.contains(mounts); })) {
    throw Failure("the dump of another program on this host does not end");
  }
  taken_.insert(mounts);
  return {nullptr, [this, mounts](void*) {
            std::lock_guard guard(mutex_);
            taken_.erase(mounts);
            changed_.notify_all();
          }};
}

}  // namespace ferry::host
