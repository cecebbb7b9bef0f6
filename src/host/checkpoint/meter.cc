#include "host/checkpoint/meter.h"

#include <algorithm>

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kWindow{5};
constexpr std::chrono::milliseconds kBetween{200};  // of what is kept of the past

}  // namespace

void Meter::begin() {
  hosts_.clear();
  past_.clear();
}

void Meter::set(std::size_t host, const StepBytes& bytes, Time now) {
  hosts_[host] = {std::min(bytes.done, bytes.total), bytes.total};
  const auto done = sum().done;
  // The first one stays: it is what the rate begins with.
  if (past_.size() > 2 && past_.back().first < past_[past_.size() - 2].first + kBetween)
    past_.pop_back();
  past_.emplace_back(now, done);
  while (past_.size() > 2 && past_[1].first <= now - kWindow) past_.pop_front();
}

StepBytes Meter::sum() const {
  StepBytes sum;
  for (const auto& [host, bytes] : hosts_) {
    sum.done += bytes.done;
    sum.total += bytes.total;
  }
  return sum;
}

Meter::Reading Meter::read() const {
  Reading reading{sum(), 0, 0};
  if (past_.size() < 2) return reading;
  const std::chrono::duration<double> time = past_.back().first - past_.front().first;
  const std::uint64_t before = past_.front().second, now = past_.back().second;
  if (time.count() <= 0 || now <= before) return reading;
  reading.rate = static_cast<double>(now - before) / time.count();
  reading.left_seconds =
      static_cast<double>(reading.bytes.total - reading.bytes.done) / reading.rate;
  return reading;
}

bool Meter::are_done(std::size_t hosts) const {
  return hosts_.size() == hosts && std::all_of(hosts_.begin(), hosts_.end(), [](const auto& entry) {
           return entry.second.done == entry.second.total;
         });
}

}  // namespace ferry::host
