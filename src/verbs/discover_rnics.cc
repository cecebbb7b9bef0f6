#include "rnic/discover.h"
#include "verbs/devices.h"

namespace ferry::verbs {

std::vector<std::unique_ptr<device::MovableRnic>> discover_rnics() {
  return rnic::discover();
}

std::unique_ptr<device::MovableRnic> find_rnic(const std::string& name) {
  return rnic::find(name);
}

}  // namespace ferry::verbs
