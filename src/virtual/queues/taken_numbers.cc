#include "virtual/queues/taken_numbers.h"

#include <algorithm>

#include "device/gids.h"

namespace ferry::virt {

bool TakenNumbers::have(const device::Object& made) const {
  if (datagrams_.are_used() && mean_another(made)) return true;
  if (device_.numbers == nullptr) return false;
  if (const auto* mr = dynamic_cast<const device::Mr*>(&made)) {
    return device_.numbers->lkeys.has_index_of(mr->lkey()) ||
           (mr->rkey() != 0 && device_.numbers->rkeys.has_index_of(mr->rkey()));
  }
  if (const auto* window = dynamic_cast<const device::Mw*>(&made))
    return device_.numbers->rkeys.has_index_of(window->rkey()) || windows_.has(window->handle());
  if (const auto* srq = dynamic_cast<const device::Srq*>(&made))
    return srq->number() != 0 && device_.numbers->srqns.has_index_of(srq->number());
  const auto* qp = dynamic_cast<const device::Qp*>(&made);
  return qp != nullptr && device_.numbers->qpns.has_index_of(qp->qpn());
}

bool TakenNumbers::mean_another(const device::Object& made) const {
  if (const auto* ah = dynamic_cast<const device::Ah*>(&made))
    return datagrams_.has_ah(ah->handle());
  const auto* qp = dynamic_cast<const device::Qp*>(&made);
  if (qp == nullptr) return false;
  const auto is_another = [&](const ibv_gid& gid) {
    return datagrams_.has({device::address_of(gid), qp->qpn()});
  };
  if (device_.gids.are_learned()) {
    const auto pairs = device_.gids.pairs();
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const Gids::Pair& pair) { return is_another(pair.known); });
  }
  const auto gids = device_.context->gids();
  return std::any_of(gids.begin(), gids.end(),
                     [&](const ibv_gid_entry& entry) { return is_another(entry.gid); });
}

}  // namespace ferry::virt
