#pragma once

#include <mutex>

#include "device/objects.h"
#include "virtual/events/kept_events.h"
#include "virtual/events/steady_descriptor.h"

namespace ferry::virt {

// The asynchronous events of a device that has a descriptor for them.
class AsynchronousEvents {
 public:
  // 0 or errno. Without effect on a device that has none. The device outlives the time until
  // leave().
  int open(device::Context& device);
  // -1: the device has none.
  int descriptor() const { return descriptor_.number(); }
  // As device::Context::take_asynchronous(), with shadows.
  int take(device::AsynchronousEvent* out);
  void acknowledge(const device::AsynchronousEvent& event);
  // The shadow is about to go. Waits until its events that were taken are acknowledged.
  void forget(const device::Object* shadow);

  // Takes what waits at the device, for the application, or to drop it.
  enum class Use { kKeep, kDrop };
  void drain(Use use);
  void leave();
  // 0 or errno.
  int enter(device::Context& device);

 private:
  // With mutex_. 0, EAGAIN or errno.
  int take_from_device(device::AsynchronousEvent* out);

  SteadyDescriptor descriptor_;
  std::mutex mutex_;                   // guards what follows
  device::Context* device_ = nullptr;  // null: it is away
  KeptEvents<device::AsynchronousEvent> events_{descriptor_};
};

}  // namespace ferry::virt
