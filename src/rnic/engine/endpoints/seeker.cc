#include "rnic/engine/endpoints/seeker.h"

#include <algorithm>
#include <cstddef>

namespace ferry::rnic {
namespace {

constexpr std::size_t kMaxSought = 256;

}  // namespace

void Seeker::seek(const port::Endpoint& name, transport::Time now) {
  if (!tell_) return;
  if (const auto asked = asked_.find(name);
      asked != asked_.end() && now - asked->second < kInterval) {
    return;
  }
  std::erase_if(asked_, [now](const auto& entry) { return now - entry.second >= kInterval; });
  asked_[name] = now;
  if (std::find(sought_.begin(), sought_.end(), name) == sought_.end()) {
    if (sought_.size() >= kMaxSought) return;  // nobody takes the names: there is no ferryd
    sought_.push_back(name);
  }
  due_ = true;
}

void Seeker::take(std::vector<port::Endpoint>* out) {
  out->insert(out->end(), sought_.begin(), sought_.end());
  sought_.clear();
}

}  // namespace ferry::rnic
