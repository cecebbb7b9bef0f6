#pragma once

#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/objects.h"

namespace ferry::virt {

// Owns the shadows of a context. Any thread may call any function.
class ShadowTable {
 public:
  void add(std::unique_ptr<device::Object> shadow) {
    device::Object* const key = shadow.get();
    std::lock_guard lock(mutex_);
    shadows_[typeid(*key)].emplace(key, std::move(shadow));
  }
  // Takes a shadow, which is in the table, out of it: from now on nobody finds the shadow.
  std::unique_ptr<device::Object> take(device::Object& shadow) {
    std::lock_guard lock(mutex_);
    return take_locked(typeid(shadow), &shadow);
  }
  // Takes the shadow out of the table if end() gives 0; no for_each() runs meanwhile. 0; EINVAL: the table
  // has no such shadow; or the error of end().
  template <typename T, typename End>
  int take_if(T* shadow, std::unique_ptr<device::Object>* out, End end) {
    std::lock_guard lock(mutex_);
    if (!shadows_[typeid(T)].contains(shadow)) return EINVAL;
    if (const int error = end()) return error;
    *out = take_locked(typeid(T), shadow);
    return 0;
  }

  // Calls look(shadow) for each shadow of type T. None of them leaves the table meanwhile.
  template <typename T, typename Look>
  void for_each(Look look) {
    std::lock_guard lock(mutex_);
    const auto found = shadows_.find(typeid(T));
    if (found == shadows_.end()) return;
    for (const auto& [object, owner] : found->second) look(*static_cast<T*>(object));
  }
  // Calls act(); no for_each() runs meanwhile.
  template <typename Act>
  void alone(Act act) {
    std::lock_guard lock(mutex_);
    act();
  }
  // All shadows of type T; the caller makes sure that none of them is destroyed.
  template <typename T>
  std::vector<T*> all() {
    std::vector<T*> found;
    for_each<T>([&](T& shadow) { found.push_back(&shadow); });
    return found;
  }

 private:
  std::unique_ptr<device::Object> take_locked(std::type_index type, device::Object* shadow) {
    auto owner = shadows_[type].extract(shadow);
    return std::move(owner.mapped());
  }

  std::mutex mutex_;
  // The shadows by their classes: a stop goes through all shadows of one class again and again.
  std::map<std::type_index, std::unordered_map<device::Object*, std::unique_ptr<device::Object>>>
      shadows_;
};

}  // namespace ferry::virt
