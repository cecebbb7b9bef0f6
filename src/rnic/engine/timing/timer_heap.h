#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "transport/types.h"

namespace ferry::rnic {

inline constexpr std::size_t kNoTimer = ~std::size_t{0};

// The base of each class whose objects have a deadline.
struct TimerEntry {
  transport::Time timer_time{};
  std::size_t timer_index = kNoTimer;  // kNoTimer: not in the heap
};

// A QP has two bases, as it is in two heaps (transport::Deadlines).
struct StrictTimer : TimerEntry {};
struct LenientTimer : TimerEntry {
  // How late a lenient deadline may be served. A program that polls serves it in time; for one that
  // does not, the progress thread would interrupt it again and again.
  static constexpr transport::Time kLenience = std::chrono::milliseconds(8);
};

// The deadlines of many QPs. Timers are nearly always put off or cancelled before they are due, so
// neither costs anything: an entry stays where it is until its old time has come, and is looked at
// again then.
class TimerHeap {
 public:
  // The earliest deadline, or an earlier time; kNever: there is none.
  transport::Time next() const { return heap_.empty() ? transport::kNever : heap_[0]->timer_time; }

  // Room for `count` entries, so that schedule() does not allocate.
  void reserve(std::size_t count) { heap_.reserve(count); }

  void schedule(TimerEntry* item, transport::Time time) {
    if (item->timer_index == kNoTimer) {
      if (time == transport::kNever) return;
      item->timer_time = time;
      item->timer_index = heap_.size();
      heap_.push_back(item);
      sift_up(item->timer_index);
    } else if (time < item->timer_time) {
      item->timer_time = time;
      sift_up(item->timer_index);
    }
  }

  // The entry with the earliest time, if that is due: the caller then puts it off or removes it.
  // Null: none is due.
  TimerEntry* due(transport::Time now) const {
    return !heap_.empty() && heap_[0]->timer_time <= now ? heap_[0] : nullptr;
  }
  void put_off(TimerEntry* item, transport::Time time) {
    item->timer_time = time;
    sift_down(item->timer_index);
  }

  void remove(TimerEntry* item) {
    const std::size_t index = item->timer_index;
    if (index == kNoTimer) return;
    item->timer_index = kNoTimer;
    TimerEntry* last = heap_.back();
    heap_.pop_back();
    if (last == item) return;
    place(index, last);
    sift_up(index);
    sift_down(last->timer_index);
  }

 private:
  void place(std::size_t index, TimerEntry* item) {
    heap_[index] = item;
    item->timer_index = index;
  }
  void sift_up(std::size_t index) {
    TimerEntry* item = heap_[index];
    while (index > 0) {
      const std::size_t parent = (index - 1) / 2;
      if (heap_[parent]->timer_time <= item->timer_time) break;
      place(index, heap_[parent]);
      index = parent;
    }
    place(index, item);
  }
  void sift_down(std::size_t index) {
    TimerEntry* item = heap_[index];
    for (;;) {
      std::size_t child = 2 * index + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1]->timer_time < heap_[child]->timer_time)
        ++child;
      if (item->timer_time <= heap_[child]->timer_time) break;
      place(index, heap_[child]);
      index = child;
    }
    place(index, item);
  }

  std::vector<TimerEntry*> heap_;
};

}  // namespace ferry::rnic
