#include "virtual/events/asynchronous_events.h"

#include <cerrno>

namespace ferry::virt {

int AsynchronousEvents::open(device::Context& device) {
  if (const int error = descriptor_.open()) return error;
  return enter(device);
}

int AsynchronousEvents::enter(device::Context& device) {
  std::lock_guard lock(mutex_);
  if (descriptor_.number() < 0 || device.asynchronous_descriptor() < 0) return 0;
  if (const int error = descriptor_.watch(device.asynchronous_descriptor())) return error;
  descriptor_.let_device_block(false);
  device_ = &device;
  return 0;
}

void AsynchronousEvents::leave() {
  std::lock_guard lock(mutex_);
  descriptor_.unwatch();
  device_ = nullptr;
  drops_ = false;
}

// Drops events of objects that the application does not know yet.
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
      if (events_.take(out)) return 0;
      const int error = take_from_device(out);
      if (error == 0) events_.note_taken(*out);
      if (error != EAGAIN) return error;
    }
    if (const int error = descriptor_.wait()) return error;
  }
}

void AsynchronousEvents::acknowledge(const device::AsynchronousEvent& event) {
  std::lock_guard lock(mutex_);
  events_.acknowledge(event.object);
}

void AsynchronousEvents::forget(const device::Object* shadow) {
  std::unique_lock lock(mutex_);
  events_.forget(shadow, lock);
}

void AsynchronousEvents::keep(const device::AsynchronousEvent& event) {
  std::lock_guard lock(mutex_);
  if (!drops_ || event.object == nullptr) events_.keep(event);
}

bool AsynchronousEvents::are_dropped() {
  std::lock_guard lock(mutex_);
  return drops_;
}

void AsynchronousEvents::drain(Use use) {
  std::lock_guard lock(mutex_);
  drops_ = true;
  device::AsynchronousEvent event;
  while (take_from_device(&event) == 0) {
    if (use == Use::kDrop) continue;
    events_.keep(event);
  }
}

}  // namespace ferry::virt
