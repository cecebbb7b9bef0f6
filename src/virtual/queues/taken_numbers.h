#pragma once

#include "device/objects.h"
#include "virtual/queues/datagrams.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/windows/windows.h"

namespace ferry::virt {

// Finds out whether an object that the device behind has just made has a number by which the application
// knows another object.
class TakenNumbers {
 public:
  TakenNumbers(const DeviceBehind& device, const Datagrams& datagrams, Windows& windows)
      : device_(device), datagrams_(datagrams), windows_(windows) {}

  // Whether the application knows another object by a number of `made`, an object behind.
  bool have(const device::Object& made) const;

 private:
  // Whether datagrams with the number of `made` mean a moved QP of another context, or another AH.
  bool mean_another(const device::Object& made) const;

  const DeviceBehind& device_;
  const Datagrams& datagrams_;
  Windows& windows_;
};

}  // namespace ferry::virt
