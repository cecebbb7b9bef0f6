#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#include "device/objects.h"
#include "virtual/events/steady_descriptor.h"

namespace ferry::virt {

// Gives the shadow that an event is about; null: the event is about the device.
inline const device::Object* object_of(const device::Cq* event) {
  return event;
}
inline const device::Object* object_of(const device::AsynchronousEvent& event) {
  return event.object;
}

// The events that Ferry keeps until the application asks for them, and the shadows whose events the
// application has taken and not acknowledged. The caller's mutex guards both.
template <typename Event>
class KeptEvents {
 public:
  // `bell` rings as long as events are kept.
  explicit KeptEvents(SteadyDescriptor& bell) : bell_(bell) {}

  void keep(const Event& event) {
    kept_.push_back(event);
    bell_.ring();
  }
  // Takes the oldest event. False: there is none.
  bool take(Event* out) {
    if (kept_.empty()) return false;
    *out = kept_.front();
    kept_.pop_front();
    if (kept_.empty()) bell_.silence();
    note_taken(*out);
    return true;
  }
  // Notes that the application gets this event.
  void note_taken(const Event& event) {
    if (object_of(event) != nullptr) taken_.insert(object_of(event));
  }
  void acknowledge(const device::Object* shadow) {
    if (const auto found = taken_.find(shadow); found != taken_.end()) taken_.erase(found);
    acknowledged_.notify_all();
  }
  // The shadow is about to end: drops its events that are kept, and waits until the application has
  // acknowledged those that it took.
  void forget(const device::Object* shadow, std::unique_lock<std::mutex>& lock) {
    std::erase_if(kept_, [&](const Event& event) { return object_of(event) == shadow; });
    if (kept_.empty() && bell_.number() >= 0) bell_.silence();
    acknowledged_.wait(lock, [&] { return !taken_.contains(shadow); });
  }

 private:
  SteadyDescriptor& bell_;
  std::deque<Event> kept_;
  std::multiset<const device::Object*> taken_;
  std::condition_variable acknowledged_;
};

}  // namespace ferry::virt
