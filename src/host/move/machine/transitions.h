#pragma once

#include <cstddef>

namespace ferry::host {

// The one of a machine's transitions for this state and event; null: the event does not happen in it.
template <typename Transition, std::size_t size>
const Transition* transition_of(const Transition (&transitions)[size],
                                decltype(Transition::from) state,
                                decltype(Transition::event) event) {
  for (const Transition& transition : transitions) {
    if (transition.from == state && transition.event == event) return &transition;
  }
  return nullptr;
}

}  // namespace ferry::host
