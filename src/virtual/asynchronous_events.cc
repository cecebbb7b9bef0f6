#include "virtual/asynchronous_events.h"

#include <cerrno>

namespace ferry::virt {

int AsynchronousEvents::open(device::Context& device) {
  if (device.asynchronous_descriptor() < 0) return 0;
  if (const int error = descriptor_.open()) return error;
  return enter(device);
}

int AsynchronousEvents::enter(device::Context& device) {
  std::lock_guard lock(mutex_);
  if (descriptor_.number() < 0) return 0;
  if (const int error = descriptor_.watch(device.asynchronous_descriptor())) return error;
  descriptor_.let_device_block(false);
  device_ = &device;
  return 0;
}

void AsynchronousEvents::leave() {
  std::lock_guard lock(mutex_);
  descriptor_.unwatch();
  device_ = nullptr;
}

// An event of an object that the application does not know yet is of no use to it.
int AsynchronousEvents::take_from_device(device::AsynchronousEvent* out) {
  if (device_ == nullptr) return EAGAIN;
  for (;;) {
    device::AsynchronousEvent event;
    if (const int error = device_->take_asynchronous(&event)) return error;
    *out = event;
    if (event.object != nullptr) out->object = static_cast<device::Object*>(event.object->cookie);
    device_->acknowledge(event);
    if (event.object == nullptr || out->object != nullptr) return 0;
  }
}

int AsynchronousEvents::take(device::AsynchronousEvent* out) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      int error = 0;
      if (!kept_.empty()) {
        *out = kept_.front();
        kept_.pop_front();
        if (kept_.empty()) descriptor_.silence();
      } else {
        error = take_from_device(out);
      }
      if (error == 0 && out->object != nullptr) taken_.insert(out->object);
      if (error != EAGAIN) return error;
    }
    if (const int error = descriptor_.wait()) return error;
  }
}

void AsynchronousEvents::acknowledge(const device::AsynchronousEvent& event) {
  std::lock_guard lock(mutex_);
  if (const auto found = taken_.find(event.object); found != taken_.end()) taken_.erase(found);
  changed_.notify_all();
}

void AsynchronousEvents::forget(const device::Object* shadow) {
  std::unique_lock lock(mutex_);
  std::erase_if(kept_, [&](const auto& event) { return event.object == shadow; });
  if (kept_.empty() && descriptor_.number() >= 0) descriptor_.silence();
  changed_.wait(lock, [&] { return !taken_.contains(shadow); });
}

void AsynchronousEvents::drain(Use use) {
  std::lock_guard lock(mutex_);
  device::AsynchronousEvent event;
  while (take_from_device(&event) == 0) {
    if (use == Use::kDrop) continue;
    kept_.push_back(event);
    descriptor_.ring();
  }
}

}  // namespace ferry::virt
