#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace ferry::host {

// Lets programs be dumped one after the other. Where /proc does not belong to a process's own pid
// namespace, CRIU mounts one for a moment, under a fixed name in its folder. Two dumps at the same
// time of programs that share a mount namespace with such a /proc take that mount from each other,
// and one fails ("Can't retrieve FD from socket").
class DumpTurns {
 public:
  // Ends when it is destroyed, by any thread.
  using Turn = std::shared_ptr<void>;

  // Waits until no other tree in the tree's mount namespace is being dumped, and gives a turn
  // there; null, at once, for a tree that needs none. Throws Failure when that takes too long.
  Turn take(pid_t root);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> taken_;  // mount namespaces
};

}  // namespace ferry::host
