#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "failure.h"

namespace carriers {

// The numbers in the events that `wait(events, most)` finds, which is epoll_wait() or pd_epoll_wait().
template <typename Event, typename Wait>
std::vector<std::uint32_t> ready_numbers(Wait wait) {
  std::array<Event, 64> events;
  const int count = wait(events.data(), static_cast<int>(events.size()));
  if (count < 0 && errno != EINTR) give_up("waiting for events");
  std::vector<std::uint32_t> ready;
  for (int index = 0; index < count; ++index)
    ready.push_back(events[static_cast<std::size_t>(index)].data.u32);
  return ready;
}

}  // namespace carriers
