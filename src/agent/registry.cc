#include "agent/registry.h"

#include <algorithm>
#include <utility>

namespace ferry::agent {

Registry::Change::Change(Registry& registry) : registry_(registry) {
  std::unique_lock lock(registry_.mutex_);
  registry_.changed_.wait(lock, [&] { return !registry_.stopped_; });
  ++registry_.changes_;
}

Registry::Change::~Change() {
  std::lock_guard lock(registry_.mutex_);
  --registry_.changes_;
  registry_.changed_.notify_all();
}

void Registry::Change::add(Entry entry) {
  std::lock_guard lock(registry_.mutex_);
  const device::MovedNames& names = registry_.moved_names_;
  if (!names.gids.empty() || !names.datagram_qps.empty()) entry.context->moved(names);
  registry_.entries_.push_back(std::move(entry));
}

void Registry::Change::remove(const device::MovableContext* context) {
  std::lock_guard lock(registry_.mutex_);
  std::erase_if(registry_.entries_, [&](const Entry& e) { return e.context == context; });
}

void Registry::set_moved_names(device::MovedNames names) {
  std::lock_guard lock(mutex_);
  moved_names_ = std::move(names);
  for (const Entry& entry : entries_) entry.context->moved(moved_names_);
}

bool Registry::begin_stop(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  if (changed_.wait_until(lock, deadline, [&] { return changes_ == 0; })) return true;
  stopped_ = false;
  changed_.notify_all();
  return false;
}

void Registry::end_stop() {
  std::lock_guard lock(mutex_);
  stopped_ = false;
  changed_.notify_all();
}

}  // namespace ferry::agent
