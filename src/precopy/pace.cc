#include "precopy/pace.h"

#include <algorithm>
#include <cmath>

namespace ferry::precopy {
namespace {

using std::chrono::nanoseconds;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kLook{200};  // between two looks at what is idle
// Less is the time between two looks at clocks, or is waited for later.
constexpr std::chrono::milliseconds kShortest{1};
constexpr std::chrono::milliseconds kCredit{
    20};  // a thread that was held up makes up for no more than this
constexpr double kFree = 0.25, kNone = 0.1;  // processors that are idle: take more; take less

}  // namespace

double Pace::floor() const {
  const double grown = floor_ * std::exp2(Seconds(last_.time) / Seconds(settings_.doubles));
  return std::min(1.0, grown / last_.sharers);
}

void Pace::look(const Used& used) {
  const auto passed = used.time - looked_.time;
  if (passed < kLook) return;
  const double free = Seconds(used.idle - looked_.idle) / Seconds(passed);
  looked_ = used;
  if (free >= kFree) share_ *= 2;
  if (free < kNone) share_ /= 2;
}

nanoseconds Pace::after(const Used& used) {
  look(used);
  share_ = std::clamp(share_, floor(), 1.0);
  const Seconds by_share = Seconds(used.processor - last_.processor) / share_;
  Seconds by_rate{0};
  if (settings_.rate > 0) {
    by_rate =
        Seconds(static_cast<double>(used.bytes - last_.bytes) * used.sharers / settings_.rate);
  }
  is_slow_ = share_ < 1 && by_share > by_rate;
  const Seconds costs = std::max(by_share, by_rate);
  due_ = std::max(due_, last_.time - kCredit) + std::chrono::duration_cast<nanoseconds>(costs);
  last_ = used;
  const auto wait = due_ - used.time;
  return wait < kShortest ? nanoseconds(0) : wait;
}

}  // namespace ferry::precopy
