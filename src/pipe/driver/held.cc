#include "pipe/driver/held.h"

namespace ferry::pipe {

void Held::add(const std::shared_ptr<Connection>& connection, int side, std::uint64_t until) {
  if (connection->is_held[side].exchange(true)) return;
  const std::lock_guard lock(mutex_);
  streams_.emplace(until, std::pair(connection, side));
  ++count_;
}

Moves Held::take(std::uint64_t now) {
  Moves due;
  const std::lock_guard lock(mutex_);
  const auto end = streams_.upper_bound(now);
  for (auto stream = streams_.begin(); stream != end; ++stream) {
    due.push_back(std::move(stream->second));
    // Before it is moved: what comes meanwhile may be held again.
    due.back().first->is_held[due.back().second] = false;
  }
  streams_.erase(streams_.begin(), end);
  count_ = streams_.size();
  return due;
}

void Held::release() {
  const std::lock_guard lock(mutex_);
  decltype(streams_) all;
  for (auto& [until, stream] : streams_) all.emplace(0, std::move(stream));
  streams_ = std::move(all);
}

std::optional<std::uint64_t> Held::next() const {
  const std::lock_guard lock(mutex_);
  return streams_.empty() ? std::nullopt : std::optional(streams_.begin()->first);
}

}  // namespace ferry::pipe
