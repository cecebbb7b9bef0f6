#pragma once

#include <cerrno>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/objects.h"

namespace ferry::virt {

// The shadows of a context, which owns them here. Any thread calls any function.
class ShadowTable {
 public:
  void add(std::unique_ptr<device::Object> shadow) {
    device::Object* const key = shadow.get();
    std::lock_guard lock(mutex_);
    shadows_.emplace(key, std::move(shadow));
  }
  // From now on nobody finds it. Null: there is none.
  std::unique_ptr<device::Object> take(device::Object* shadow) {
    std::lock_guard lock(mutex_);
    return take_locked(shadow);
  }
  // Takes the shadow if end() gives 0; nobody looks at shadows meanwhile. 0, EINVAL: there is none, or
  // the error of end().
  template <typename End>
  int take_if(device::Object* shadow, std::unique_ptr<device::Object>* out, End end) {
    std::lock_guard lock(mutex_);
    if (!shadows_.contains(shadow)) return EINVAL;
    if (const int error = end()) return error;
    *out = take_locked(shadow);
    return 0;
  }

  // Calls look(shadow) for each of type T. None of them goes meanwhile.
  template <typename T, typename Look>
  void for_each(Look look) {
    std::lock_guard lock(mutex_);
    for (const auto& [object, owner] : shadows_) {
      if (auto* shadow = dynamic_cast<T*>(object)) look(*shadow);
    }
  }
  // Calls act(), and no for_each() goes on meanwhile.
  template <typename Act>
  void alone(Act act) {
    std::lock_guard lock(mutex_);
    act();
  }
  // Those of type T, for who knows that none of them goes.
  template <typename T>
  std::vector<T*> all() {
    std::vector<T*> found;
    for_each<T>([&](T& shadow) { found.push_back(&shadow); });
    return found;
  }

 private:
  std::unique_ptr<device::Object> take_locked(device::Object* shadow) {
    const auto found = shadows_.find(shadow);
    if (found == shadows_.end()) return nullptr;
    auto owner = std::move(found->second);
    shadows_.erase(found);
    return owner;
  }

  std::mutex mutex_;
  std::unordered_map<device::Object*, std::unique_ptr<device::Object>> shadows_;
};

}  // namespace ferry::virt
