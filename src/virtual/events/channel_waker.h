#pragma once

#include "device/objects.h"

namespace ferry::virt {

// Wakes threads that wait for events of a channel of the device: it has a CQ and a QP of its own
// there, and raises events of that CQ, which is no shadow's.
class ChannelWaker {
 public:
  // The device outlives it.
  explicit ChannelWaker(device::Context& device) : device_(device) {}
  ~ChannelWaker();
  ChannelWaker(const ChannelWaker&) = delete;
  ChannelWaker& operator=(const ChannelWaker&) = delete;

  // These give 0 or errno.
  int open(device::Channel& channel);
  // Raises one event: a receive that is flushed.
  int wake();

 private:
  device::Context& device_;
  device::Pd* pd_ = nullptr;
  device::Cq* cq_ = nullptr;
  device::Qp* qp_ = nullptr;
};

}  // namespace ferry::virt
