#include "virtual/queues/marker_objects.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace ferry::virt {

// The marker names an MR in its bind, because librxe reads that MR also when no byte is bound.
int MarkerObjects::make_window(Qp& qp) {
  static std::byte nothing;
  if (!qp.wants_window()) return 0;
  Pd& pd = *static_cast<Pd*>(qp.init().pd);
  device::MrInit init;
  init.pd = pd.inner;
  init.address = &nothing;
  init.length = sizeof nothing;
  init.iova = reinterpret_cast<std::uintptr_t>(&nothing);
  init.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  if (pd.region == nullptr) {
    if (const int error = device_.context->reg_mr(init, &pd.region)) return error;
  }
  device::Mw* window = nullptr;
  if (const int error = device_.context->alloc_mw(pd.inner, IBV_MW_TYPE_1, &window)) return error;
  qp.set_window(window);
  return 0;
}

int MarkerObjects::make_windows() {
  for (Qp* qp : shadows_.all<Qp>()) {
    if (const int error = make_window(*qp)) return error;
  }
  return 0;
}

int MarkerObjects::make_paths() {
  const std::vector<Gids::Pair> pairs = device_.gids.pairs();
  for (Qp* qp : shadows_.all<Qp>()) {
    if (!qp->wants_path_to_itself()) continue;
    const std::uint8_t port = qp->attributes().port_num;
    const auto own = std::find_if(pairs.begin(), pairs.end(),
                                  [&](const Gids::Pair& pair) { return pair.port == port; });
    if (own == pairs.end()) return EADDRNOTAVAIL;
    ibv_ah_attr path{};
    path.port_num = port;
    path.is_global = 1;
    path.grh.sgid_index = static_cast<std::uint8_t>(own->real_index);
    path.grh.dgid = own->real;
    path.grh.hop_limit = 1;
    device::Ah* made = nullptr;
    if (const int error = device_.context->create_ah(behind(qp->init().pd), path, &made))
      return error;
    if (device::Ah* old = qp->set_path_to_itself(made, port)) device_.context->destroy(old);
  }
  return 0;
}

void MarkerObjects::destroy_window(Qp& qp) {
  if (device::Mw* window = qp.set_window(nullptr)) device_.context->destroy(window);
}

void MarkerObjects::destroy_path(Qp& qp) {
  if (device::Ah* path = qp.set_path_to_itself(nullptr, 0)) device_.context->destroy(path);
}

void MarkerObjects::destroy_region(Pd& pd) {
  if (device::Mr* region = std::exchange(pd.region, nullptr)) device_.context->destroy(region);
}

}  // namespace ferry::virt
