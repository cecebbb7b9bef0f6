#include "base/alarm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <semaphore>

namespace ferry {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Alarm, RingsOnceWhenItsTimeIsOver) {
  std::counting_semaphore<> rung(0);
  Alarm alarm(milliseconds(1), [&] { rung.release(); });
  rung.acquire();
  EXPECT_FALSE(rung.try_acquire_for(milliseconds(20)));
}

TEST(Alarm, IsSilentWhenItIsDestroyedBefore) {
  std::atomic<bool> rung{false};
  {
    Alarm alarm(hours(1), [&] { rung = true; });
  }
  EXPECT_FALSE(rung);
}

TEST(Alarm, IsNotDestroyedWhileItRings) {
  std::binary_semaphore begun(0);
  std::atomic<bool> done{false};
  {
    Alarm alarm(milliseconds(0), [&] {
      begun.release();
      std::this_thread::sleep_for(milliseconds(20));
      done = true;
    });
    begun.acquire();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace ferry
