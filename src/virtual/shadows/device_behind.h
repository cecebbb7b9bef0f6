#pragma once

#include <memory>

#include "device/objects.h"
#include "virtual/shadows/gids.h"
#include "virtual/shadows/numbers.h"

namespace ferry::virt {

// The device behind a context as it is now, and by which numbers and GIDs it knows what the application
// knows by others.
struct DeviceBehind {
  std::unique_ptr<device::Context> context;  // null while parked
  std::unique_ptr<Numbers> numbers;          // null: none has changed; set while all calls wait
  Gids gids;

  // Before it is left, or anybody is told of it.
  void learn_gids() {
    if (!gids.are_learned()) gids.learn(*context);
  }
};

}  // namespace ferry::virt
