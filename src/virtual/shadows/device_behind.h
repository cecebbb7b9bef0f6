#pragma once

#include <memory>

#include "device/objects.h"
#include "virtual/shadows/gids.h"
#include "virtual/shadows/numbers.h"

namespace ferry::virt {

// The device behind a context as it is now, with the tables from the numbers and GIDs that the
// application knows to those of the device.
struct DeviceBehind {
  std::unique_ptr<device::Context> context;  // null while parked
  std::unique_ptr<Numbers> numbers;          // null: no number changed; set while all calls wait
  Gids gids;

  // Is called before the context leaves the device, and before letters name its GIDs.
  void learn_gids() {
    if (!gids.are_learned()) gids.learn(*context);
  }
};

}  // namespace ferry::virt
