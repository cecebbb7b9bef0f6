#pragma once

#include "device/objects.h"
#include "virtual/queues/datagrams.h"
#include "virtual/shadows/device_behind.h"

namespace ferry::virt {

// The numbers that mean something else to the application than what the device behind has just made.
class TakenNumbers {
 public:
  TakenNumbers(const DeviceBehind& device, const Datagrams& datagrams)
      : device_(device), datagrams_(datagrams) {}

  // Whether the application has a number of `made`, an object behind, for another one.
  bool have(const device::Object& made) const;

 private:
  // Whether datagrams with this number mean another QP, or another AH.
  bool mean_another(const device::Object& made) const;

  const DeviceBehind& device_;
  const Datagrams& datagrams_;
};

}  // namespace ferry::virt
