#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "virtual/events/kept_events.h"
#include "virtual/events/steady_descriptor.h"
#include "virtual/shadows/objects.h"

namespace ferry::virt {

// A completion channel. A thread that waits for events waits in the kernel, as without Ferry, and gets them from the
// device, if the device has channels; from a device without channels, and while CQs are stopped, the shadows get the
// events, and the channel keeps them.
class Channel final : public Shadow<device::Channel> {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Shadow::Shadow;  // without an object: the device has no channels

  // Opens the descriptor, without which the channel is of no use. 0 or errno.
  int open();
  int descriptor() const override { return descriptor_.number(); }
  int take(device::Cq** out) override;

  // The application acknowledges an event of this CQ that it took.
  void acknowledge(const device::Cq& shadow);
  // The shadow is about to end: drops its events that are kept, and waits until the application has
  // acknowledged those that it took.
  void forget(const device::Cq& shadow);

  // --- A stop of the device behind, or of one CQ

  // Between stop() and resume(), events of the device are only collected: some are of markers, and no
  // thread may wake for these.
  void stop();
  void resume();
  // Takes the events of the device, and keeps those that are for the application. Throws std::bad_alloc.
  void collect();
  // Keeps an event of a CQ, which did not come by the device's channel, for the application. Throws std::bad_alloc.
  void ring(device::Cq& shadow);
  // While the channel is stopped: wakes the threads that are inside of the channel of the device, until
  // none is inside. 0 or errno; ETIMEDOUT: a thread was still inside at the deadline.
  int drive_out(device::Context& device, Deadline deadline);
  // Gives the channel of the device to the caller, who destroys it; null: there is none. Its events are
  // dropped: a CQ that is armed will be armed again.
  device::Channel* leave_device();
  void unwatch() { descriptor_.unwatch(); }
  // 0 or errno.
  int enter_device(device::Channel& object);

 private:
  // With mutex_. Acknowledges an event of the device, and gives the CQ whose event it is for the
  // application; null: the event is not for the application.
  device::Cq* accept(device::Cq& of_device);
  // With mutex_.
  void collect_locked();

  SteadyDescriptor descriptor_;
  std::mutex mutex_;  // guards what follows, and `inner`
  std::condition_variable changed_;
  KeptEvents<device::Cq*> events_{descriptor_};
  int stops_ = 0;
  int inside_ = 0;  // threads in take() of the device's channel
};

}  // namespace ferry::virt
