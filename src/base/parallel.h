#pragma once

#include <exception>
#include <future>
#include <vector>

namespace ferry {

// Calls step(item) for each item, all at the same time, and returns when all have ended. Throws
// what the first of those items that failed, in their order, has thrown.
template <typename Items, typename Step>
void in_parallel(const Items& items, Step step) {
  std::vector<std::future<void>> others;
  std::exception_ptr failure;
  const auto keep_failure = [&](auto call) {
    try {
      call();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  for (auto item = items.begin(); item != items.end(); ++item) {
    if (item == items.begin()) continue;
    others.push_back(std::async(std::launch::async, [&step, item] { step(*item); }));
  }
  if (!std::empty(items)) keep_failure([&] { step(*items.begin()); });
  for (auto& other : others) keep_failure([&] { other.get(); });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ferry
