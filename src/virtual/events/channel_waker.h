#pragma once

#include "device/objects.h"

namespace ferry::virt {

// Wakes threads that wait for events of a channel of the device. The waker has a CQ on that channel and a
// QP of its own, and raises events of this CQ, which has no shadow.
class ChannelWaker {
 public:
  // The device outlives the waker.
  explicit ChannelWaker(device::Context& device) : device_(device) {}
  ~ChannelWaker();
  ChannelWaker(const ChannelWaker&) = delete;
  ChannelWaker& operator=(const ChannelWaker&) = delete;

  // These give 0 or errno.
  int open(device::Channel& channel);
  // Raises one event, by flushing a receive.
  int wake();

 private:
  device::Context& device_;
  device::Pd* pd_ = nullptr;
  device::Cq* cq_ = nullptr;
  device::Qp* qp_ = nullptr;
};

}  // namespace ferry::virt
