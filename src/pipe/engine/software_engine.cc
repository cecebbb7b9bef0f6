#include "pipe/engine/software_engine.h"

#include <algorithm>

#include "pipe/engine/guarded_copy.h"

namespace ferry::pipe {

SoftwareEngine::SoftwareEngine() {
  guard_copies();
}

std::size_t SoftwareEngine::submit(std::span<const Entry> entries) {
  for (Entry entry : entries) {
    const bool copied = guarded_copy(reinterpret_cast<void*>(entry.destination),
                                     reinterpret_cast<const void*>(entry.source), length_of(entry));
    entry.type = copied ? EntryType::kCompleted : EntryType::kFailed;
    const std::lock_guard lock(mutex_);
    done_.push_back(entry);
  }
  return entries.size();
}

std::size_t SoftwareEngine::reap(std::span<Entry> done) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(done.size(), done_.size());
  std::copy_n(done_.begin(), count, done.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace ferry::pipe
