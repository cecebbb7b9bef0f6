#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pipe/driver/connections.h"

namespace ferry::pipe {

// Connections whose streams may have something to move: a stream is that of a side.
using Moves = std::vector<std::pair<std::shared_ptr<Connection>, int>>;

// Streams that have something to move, and may not for now: a limit of a rate is reached. Any thread may call.
class Held {
 public:
  // One that is in already stays as it is.
  void add(const std::shared_ptr<Connection>& connection, int side, std::uint64_t until);
  // Those whose time has come.
  Moves take(std::uint64_t now);
  // The time of all has come: a limit has changed.
  void release();
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // When the first one's time comes.
  std::optional<std::uint64_t> next() const;

 private:
  mutable std::mutex mutex_;
  std::multimap<std::uint64_t, std::pair<std::shared_ptr<Connection>, int>> streams_;  // by time
  std::atomic<std::size_t> count_{0};
};

}  // namespace ferry::pipe
