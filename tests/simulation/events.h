#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "port/random.h"
#include "transport/types.h"

// Virtual time: events in the order of their times, of equal times in the order in which they were
// scheduled. All chance comes from one seed.
namespace ferry::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::Time;

class Events {
 public:
  explicit Events(std::uint64_t seed) : random(seed) {}

  port::SplitMix64 random;

  Time now() const { return now_; }
  void in(Time delay, std::function<void()> run) {
    heap_.push_back({now_ + delay, order_++, std::move(run)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  // False: nothing will ever happen any more.
  bool step() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.at;
    event.run();
    return true;
  }
  std::uint64_t pick(std::uint64_t low, std::uint64_t high) { return random.between(low, high); }
  bool chance(double probability) { return random.chance(probability); }
  Time between(Time low, Time high) {
    return Time(
        pick(static_cast<std::uint64_t>(low.count()), static_cast<std::uint64_t>(high.count())));
  }

 private:
  struct Event {
    Time at;
    std::uint64_t order;
    std::function<void()> run;
  };
  static bool later(const Event& a, const Event& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }

  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
  Time now_{0};
};

}  // namespace ferry::simulation
