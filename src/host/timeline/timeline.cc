#include "host/timeline/timeline.h"

#include <iterator>
#include <utility>

namespace ferry::host {

Timeline::Step::~Step() {
  std::lock_guard lock(timeline_.mutex_);
  span_->end = Clock::now();
}

Timeline::Step Timeline::step(std::string lane, std::string name) {
  std::lock_guard lock(mutex_);
  spans_.push_back({std::move(lane), std::move(name), Clock::now(), {}});
  return {*this, std::prev(spans_.end())};
}

void Timeline::add(Span span) {
  std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

std::vector<Timeline::Span> Timeline::spans() const {
  const auto now = Clock::now();
  std::lock_guard lock(mutex_);
  std::vector<Span> all(spans_.begin(), spans_.end());
  for (auto& span : all) {
    if (span.end == Clock::time_point()) span.end = now;
  }
  return all;
}

}  // namespace ferry::host
