#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <vector>

#include "device/gids.h"
#include "virtual/shadows/objects.h"

namespace ferry::virt {

// An address handle. It has one object behind for its destination, and one more for each place to which
// UD QPs have moved from there (Datagrams).
class Ah final : public Shadow<device::Ah> {
 public:
  Ah(device::Ah& object, device::Pd* its_pd, const ibv_ah_attr& given)
      : Shadow(object), pd(its_pd), attributes(given), handle_(object.handle()) {
    enter_device(object);
  }
  std::uint32_t handle() const override { return handle_; }
  port::Address destination() const { return device::address_of(attributes.grh.dgid); }

  device::Pd* const pd;
  const ibv_ah_attr attributes;

  // --- The caller has the lock of Datagrams. A request names an AH of the device by ibv_ah::handle.

  ibv_ah* direct_way() { return &direct_; }
  // Gives the AH of the device for datagrams that go to `gid`; null: there is none.
  ibv_ah* way_to(const port::Address& gid) {
    if (gid == destination()) return &direct_;
    const auto found = ways_.find(gid);
    return found != ways_.end() ? &found->second.named : nullptr;
  }
  void add_way(const port::Address& gid, device::Ah& object) {
    ways_[gid] = {&object, named(object)};
  }

  // --- A stop

  void enter_device(device::Ah& object) {
    attach(object);
    direct_ = named(object);
  }
  bool has_way_to(const port::Address& gid) const { return ways_.count(gid) > 0; }
  // Gives the objects behind for the places of moved QPs to the caller, who destroys them.
  std::vector<device::Ah*> leave_ways() {
    std::vector<device::Ah*> objects;
    for (auto& [gid, way] : ways_) objects.push_back(way.object);
    ways_.clear();
    return objects;
  }

 private:
  struct Way {
    device::Ah* object = nullptr;
    ibv_ah named{};
  };

  static ibv_ah named(const device::Ah& object) { return {nullptr, nullptr, object.handle()}; }

  const std::uint32_t handle_;
  ibv_ah direct_{};
  std::map<port::Address, Way> ways_;
};

}  // namespace ferry::virt
