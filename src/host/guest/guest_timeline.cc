#include "host/guest/guest_timeline.h"

#include <chrono>

namespace ferry::host {
namespace {

std::uint64_t in_guest_us(Timeline::Clock::time_point time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

std::size_t tell_spans(const Timeline& timeline, std::size_t told, v1::GuestReply* reply) {
  const auto spans = timeline.spans();
  for (std::size_t i = told; i < spans.size(); ++i) {
    auto* added = reply->add_spans();
    added->set_lane(spans[i].lane);
    added->set_name(spans[i].name);
    added->set_begin_us(in_guest_us(spans[i].begin));
    added->set_end_us(in_guest_us(spans[i].end));
  }
  reply->set_now_us(in_guest_us(Timeline::Clock::now()));
  return spans.size();
}

}  // namespace ferry::host
