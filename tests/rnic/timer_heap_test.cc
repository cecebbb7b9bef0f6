#include "rnic/engine/timing/timer_heap.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ferry::rnic {
namespace {

using transport::kNever;
using transport::Time;

TEST(TimerHeap, GivesWhatIsDue) {
  TimerHeap heap;
  TimerEntry a, b;
  EXPECT_EQ(heap.next(), kNever);
  heap.schedule(&a, Time(10));
  heap.schedule(&b, Time(5));
  EXPECT_EQ(heap.next(), Time(5));
  EXPECT_EQ(heap.due(Time(4)), nullptr);
  EXPECT_EQ(heap.due(Time(5)), &b);
  heap.remove(&b);
  EXPECT_EQ(heap.due(Time(20)), &a);
  heap.remove(&a);
  heap.remove(&a);
  EXPECT_EQ(heap.next(), kNever);
}

TEST(TimerHeap, LaterTimesWaitForTheirTurn) {
  TimerHeap heap;
  TimerEntry a;
  heap.schedule(&a, Time(10));
  heap.schedule(&a, Time(30));
  EXPECT_EQ(heap.next(), Time(10));  // looked at then, and put off
  ASSERT_EQ(heap.due(Time(10)), &a);
  heap.put_off(&a, Time(30));
  EXPECT_EQ(heap.next(), Time(30));
  heap.schedule(&a, Time(7));
  EXPECT_EQ(heap.next(), Time(7));
  heap.schedule(&a, kNever);
  EXPECT_EQ(heap.next(), Time(7));
}

// Against a list that is searched.
TEST(TimerHeap, RandomOperations) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    TimerHeap heap;
    std::vector<TimerEntry> entries(50);
    std::vector<Time> times(entries.size(), kNever);
    for (int step = 0; step < 300; ++step) {
      const std::size_t i = random() % entries.size();
      const Time time(random() % 1000);
      switch (random() % 4) {
        case 0:
        case 1:
          heap.schedule(&entries[i], time);
          times[i] = std::min(times[i], time);
          break;
        case 2:
          heap.remove(&entries[i]);
          times[i] = kNever;
          break;
        default:
          if (TimerEntry* due = heap.due(time)) {
            const auto index = static_cast<std::size_t>(due - entries.data());
            ASSERT_EQ(times[index], *std::min_element(times.begin(), times.end()));
            heap.put_off(due, time + Time(1));
            times[index] = time + Time(1);
          }
      }
      ASSERT_EQ(heap.next(), *std::min_element(times.begin(), times.end()));
    }
  }
}

}  // namespace
}  // namespace ferry::rnic
