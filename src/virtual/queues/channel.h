#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "virtual/events/kept_events.h"
#include "virtual/events/steady_descriptor.h"
#include "virtual/shadows/objects.h"

namespace ferry::virt {

// A completion channel of a device that has such. Its events come from the device, by a thread that
// waits in the kernel, as without Ferry; while CQs are stopped, also from the shadows.
class Channel final : public Shadow<device::Channel> {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Shadow::Shadow;

  // 0 or errno; without it the channel is of no use.
  int open();
  int descriptor() const override { return descriptor_.number(); }
  int take(device::Cq** out) override;

  // What an event was taken of has been noted by whoever took it.
  void acknowledge(const device::Cq& shadow);
  // The shadow is about to go. Waits until its events that were taken are acknowledged.
  void forget(const device::Cq& shadow);

  // --- A stop of the device behind, or of one CQ

  // In between, events of the device are only collected: some are of markers, and no thread may wake
  // for these.
  void stop();
  void resume();
  // Takes the events of the device that are the application's. Throws std::bad_alloc.
  void collect();
  // An event of a CQ that is stopped, for the application. Throws std::bad_alloc.
  void ring(device::Cq& shadow);
  // While it is stopped: no thread is inside of the channel of the device when it returns. 0 or
  // errno; ETIMEDOUT.
  int drive_out(device::Context& device, Deadline deadline);
  // The channel of the device is about to end. Its events are dropped: a CQ that is armed is armed
  // again.
  device::Channel* leave_device();
  void unwatch() { descriptor_.unwatch(); }
  // 0 or errno.
  int enter_device(device::Channel& object);

 private:
  // With mutex_. What an event of the device is for the application; null: nothing.
  device::Cq* accept(device::Cq& of_device);
  // With mutex_.
  void collect_locked();

  SteadyDescriptor descriptor_;
  std::mutex mutex_;  // guards what follows, and `inner`
  std::condition_variable changed_;
  KeptEvents<device::Cq*> events_{descriptor_};
  int stops_ = 0;
  int inside_ = 0;  // threads in take() of the device
};

}  // namespace ferry::virt
