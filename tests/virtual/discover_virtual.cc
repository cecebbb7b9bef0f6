#include "rnic/discover.h"
#include "verbs/devices.h"
#include "virtual/rnic.h"

namespace ferry::verbs {

std::vector<std::unique_ptr<device::MovableRnic>> discover_rnics() {
  std::vector<std::unique_ptr<device::MovableRnic>> all;
  for (auto& rnic : rnic::discover()) all.push_back(std::make_unique<virt::Rnic>(std::move(rnic)));
  return all;
}

std::unique_ptr<device::MovableRnic> find_rnic(const std::string& name) {
  return rnic::find(name);
}

}  // namespace ferry::verbs
