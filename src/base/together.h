#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <vector>

namespace ferry {

// Calls step(*part) for each, all at the same time. When one throws, or `need_go_on`, which is called again and again
// meanwhile, all are given up, so that none waits for what will not come. Returns when all have ended, and throws what
// was thrown first.
template <typename Part, typename NeedGoOn, typename Step>
void together(const std::vector<std::unique_ptr<Part>>& parts, NeedGoOn need_go_on, Step step) {
  constexpr std::chrono::milliseconds kLook{5};
  std::vector<std::future<void>> running;
  for (const auto& part : parts) {
    running.push_back(std::async(std::launch::async, [&step, &part] { step(*part); }));
  }
  std::exception_ptr failure;
  const auto give_up = [&](std::exception_ptr reason) {
    if (failure) return;
    failure = std::move(reason);
    for (const auto& part : parts) part->give_up();
  };
  for (std::size_t left = running.size(); left > 0;) {
    for (auto& each : running) {
      if (!each.valid() || each.wait_for(kLook) != std::future_status::ready) continue;
      --left;
      try {
        each.get();
      } catch (...) {
        give_up(std::current_exception());
      }
    }
    if (failure) continue;
    try {
      need_go_on();
    } catch (...) {
      give_up(std::current_exception());
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ferry
