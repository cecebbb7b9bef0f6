#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace ferry::host {

// Programs that are dumped one after the other. Where /proc is not of a process's own pid namespace
// CRIU mounts one in passing, under a fixed name in its folder: two dumps at the same time of
// programs that share a mount namespace with such a /proc take it from each other, and one fails
// ("Can't retrieve FD from socket").
class DumpTurns {
 public:
  // Released by whoever destroys it, in any thread.
  using Turn = std::shared_ptr<void>;

  // A turn of the tree's mount namespace, once its other dumps are over; nothing at once for a tree
  // that needs none. Throws Failure when that takes too long.
  Turn take(pid_t root);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> taken_;  // mount namespaces
};

}  // namespace ferry::host
