#include "rnic/discover.h"
#include "verbs/devices.h"

namespace ferry::verbs {

std::vector<std::unique_ptr<device::MovableRnic>> discover_rnics() {
  return rnic::discover();
}

}  // namespace ferry::verbs
