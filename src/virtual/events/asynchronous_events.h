#pragma once

#include <mutex>

#include "device/objects.h"
#include "virtual/events/kept_events.h"
#include "virtual/events/steady_descriptor.h"

namespace ferry::virt {

// The asynchronous events of a context whose application waits for them by a descriptor. Some devices have a descriptor
// for their events as well; others tell the context of each event.
class AsynchronousEvents {
 public:
  // 0 or errno. The device lives at least until leave().
  int open(device::Context& device);
  // -1: open() was not called: the application has no descriptor.
  int descriptor() const { return descriptor_.number(); }
  // As device::Context::take_asynchronous(), but gives shadows.
  int take(device::AsynchronousEvent* out);
  void acknowledge(const device::AsynchronousEvent& event);
  // The shadow is about to end: drops its events that are kept, and waits until the application has
  // acknowledged those that it took.
  void forget(const device::Object* shadow);

  // A device without a descriptor tells of an event, for the application. Throws std::bad_alloc.
  void keep(const device::AsynchronousEvent& event);

  // Takes the events that wait at the device, to keep them for the application or to drop them. Events of objects that
  // the device tells of from drain(kKeep) until leave() are dropped: they come from the flush of QPs.
  enum class Use { kKeep, kDrop };
  void drain(Use use);
  // Whether events of objects are dropped now.
  bool are_dropped();
  void leave();
  // 0 or errno.
  int enter(device::Context& device);

 private:
  // With mutex_. 0 or errno; EAGAIN: no event waits.
  int take_from_device(device::AsynchronousEvent* out);

  SteadyDescriptor descriptor_;
  std::mutex mutex_;                   // guards what follows
  device::Context* device_ = nullptr;  // null: the device is away, or has no descriptor
  bool drops_ = false;
  KeptEvents<device::AsynchronousEvent> events_{descriptor_};
};

}  // namespace ferry::virt
