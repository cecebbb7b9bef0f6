#include "host/checkpoint/take/content_keys.h"

#include <cstddef>

namespace ferry::host {
namespace {

constexpr std::size_t kMostKeys = 64;  // without its key, the next checkpoint writes all anew

}  // namespace

store::ContentKey ContentKeys::key_for(const std::string& directory,
                                       const store::Recipients& recipients) {
  const std::pair whose(directory, recipients.digest());
  std::lock_guard lock(mutex_);
  const auto known = keys_.find(whose);
  if (known != keys_.end()) return known->second;
  if (keys_.size() == kMostKeys) keys_.erase(keys_.begin());
  return keys_.emplace(whose, store::ContentKey::random()).first->second;
}

}  // namespace ferry::host
