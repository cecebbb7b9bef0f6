#include "virtual/queues/channel.h"

#include <cerrno>
#include <utility>

#include "virtual/events/channel_waker.h"
#include "virtual/queues/completion_queue.h"

namespace ferry::virt {
namespace {

constexpr std::chrono::milliseconds kBetweenEvents{2};

}  // namespace

int Channel::open() {
  if (const int error = descriptor_.open()) return error;
  return inner != nullptr ? descriptor_.watch(inner->descriptor()) : 0;
}

device::Cq* Channel::accept(device::Cq& of_device) {
  device::Cq* shadow = shadow_of(of_device);
  if (shadow != nullptr && !static_cast<Cq*>(shadow)->raised()) shadow = nullptr;
  of_device.acknowledge();  // an event that the application holds must not keep this CQ alive
  return shadow;
}

int Channel::take(device::Cq** out) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (events_.take(out)) return 0;
    if (stops_ > 0 || inner == nullptr) {
      lock.unlock();
      if (const int error = descriptor_.wait()) return error;
      continue;
    }
    const bool blocks = descriptor_.blocks();
    descriptor_.let_device_block(blocks);
    device::Channel* const device = inner;
    ++inside_;
    lock.unlock();
    device::Cq* of_device = nullptr;
    const int error = device->take(&of_device);
    lock.lock();
    *out = error == 0 ? accept(*of_device) : nullptr;
    if (*out != nullptr) events_.note_taken(*out);
    --inside_;
    changed_.notify_all();
    if (*out != nullptr) return 0;
    // EAGAIN although the application's calls block: a stop has begun, in which the device's do not.
    if (error != 0 && !(error == EAGAIN && blocks)) return error;
  }
}

void Channel::acknowledge(const device::Cq& shadow) {
  std::lock_guard lock(mutex_);
  events_.acknowledge(&shadow);
}

void Channel::forget(const device::Cq& shadow) {
  std::unique_lock lock(mutex_);
  events_.forget(&shadow, lock);
}

// --- A stop

void Channel::stop() {
  std::lock_guard lock(mutex_);
  if (stops_++ > 0) return;
  descriptor_.mute(true);
  collect_locked();
}

void Channel::resume() {
  std::lock_guard lock(mutex_);
  if (--stops_ > 0) return;
  collect_locked();
  descriptor_.mute(false);
}

void Channel::collect() {
  std::lock_guard lock(mutex_);
  if (stops_ > 0) collect_locked();
}

// Takes nothing while threads are inside: they take the events themselves, and an event that was taken
// here would not wake them.
void Channel::collect_locked() {
  if (inside_ > 0) return;
  descriptor_.let_device_block(false);
  device::Cq* of_device = nullptr;
  while (inner != nullptr && inner->take(&of_device) == 0) {
    if (device::Cq* shadow = accept(*of_device)) events_.keep(shadow);
  }
}

void Channel::ring(device::Cq& shadow) {
  std::lock_guard lock(mutex_);
  events_.keep(&shadow);
}

int Channel::drive_out(device::Context& device, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (inside_ == 0) return 0;
  device::Channel& channel = *inner;
  lock.unlock();
  ChannelWaker waker(device);
  if (const int error = waker.open(channel)) return error;
  for (;;) {
    if (const int error = waker.wake()) return error;
    lock.lock();
    if (changed_.wait_for(lock, kBetweenEvents, [this] { return inside_ == 0; })) return 0;
    if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
    lock.unlock();
  }
}

device::Channel* Channel::leave_device() {
  std::lock_guard lock(mutex_);
  if (inner == nullptr) return nullptr;
  descriptor_.unwatch();
  return std::exchange(inner, nullptr);
}

int Channel::enter_device(device::Channel& object) {
  std::lock_guard lock(mutex_);
  attach(object);
  return descriptor_.watch(object.descriptor());
}

}  // namespace ferry::virt
