#include "virtual/windows/window_queue.h"

#include <cerrno>
#include <new>

namespace ferry::virt {

bool WindowQp::take(ibv_send_wr* copy, Named* named, std::uint64_t* number) {
  Windows::Change change{qpn_, copy->wr_id, nullptr, 0, {}};
  if (copy->opcode == IBV_WR_LOCAL_INV) {
    if (windows_.invalidation_of(copy->invalidate_rkey, &change))
      *number = windows_.note(change, capacity_);
    if (numbers_ != nullptr) copy->invalidate_rkey = numbers_->rkeys[copy->invalidate_rkey];
    return true;
  }
  if (copy->opcode != IBV_WR_BIND_MW) return true;
  const auto& [window, rkey, info] = copy->bind_mw;
  change.window = window != nullptr ? windows_.find(window->handle) : nullptr;
  if (change.window == nullptr) return false;
  named->window.handle = change.window->inner->handle();
  named->window.rkey = window->rkey;
  named->region.lkey = info.mr != nullptr ? info.mr->lkey : 0;
  // The device gets the key that its window has (rdma_rxe compares), which the application need not know.
  const bool is_new = windows_.state(*change.window).behind == Mw::Behind::kNew;
  change.rkey = rkey;
  if (info.length != 0)
    change.binding = {named->region.lkey, info.addr, info.length, info.mw_access_flags, qpn_};
  *number = windows_.note(change, capacity_);
  if (numbers_ != nullptr) {
    named->window.rkey =
        is_new ? change.window->inner->rkey() : numbers_->rkeys[named->window.rkey];
    named->region.lkey = numbers_->lkeys[named->region.lkey];
    copy->bind_mw.rkey = numbers_->rkeys[rkey];
  }
  copy->bind_mw.mw = &named->window;
  if (info.mr != nullptr) copy->bind_mw.bind_info.mr = &named->region;
  return true;
}

// The latest first, so that each window gets back the state that it had before all of them.
void WindowQp::take_back(const std::vector<std::uint64_t>& numbers, std::size_t posted) {
  for (std::size_t i = numbers.size(); i-- > posted;) {
    if (numbers[i] != 0) windows_.take_back(qpn_, numbers[i]);
  }
}

std::size_t WindowQp::take_all(std::vector<ibv_send_wr>* copies, std::vector<Named>* named,
                               std::vector<std::uint64_t>* numbers) try {
  std::size_t known = 0;
  for (; known < copies->size(); ++known) {
    if (!take(&(*copies)[known], &(*named)[known], &(*numbers)[known])) break;
    (*copies)[known].next = nullptr;
    if (known > 0) (*copies)[known - 1].next = &(*copies)[known];
  }
  return known;
} catch (const std::bad_alloc&) {
  take_back(*numbers, 0);
  throw;
}

int WindowQp::post_copies(ibv_send_wr* list, ibv_send_wr** bad, bool all) try {
  *bad = list;
  std::vector<ibv_send_wr> copies;
  for (const ibv_send_wr* request = list; request != nullptr; request = request->next)
    copies.push_back(*request);
  std::vector<Named> named(copies.size());
  std::vector<std::uint64_t> numbers(copies.size());
  const std::size_t known = take_all(&copies, &named, &numbers);
  int error = 0;
  std::size_t posted = known;
  if (all && known == copies.size()) {
    error = next_.post_all(copies.data());
    if (error != 0) posted = 0;
  } else if (all) {
    posted = 0;
  } else if (known > 0) {
    ibv_send_wr* failed = copies.data();
    error = next_.post_send(copies.data(), &failed);
    if (error != 0) posted = static_cast<std::size_t>(failed - copies.data());
  }
  take_back(numbers, posted);
  for (std::size_t i = 0; i < posted && *bad != nullptr; ++i) *bad = (*bad)->next;
  return error == 0 && known < copies.size() ? EINVAL : error;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int WindowQp::bind_held(const ibv_send_wr& request) {
  const auto& [named, rkey, info] = request.bind_mw;
  Mw* window = windows_.find(named->handle);
  device::MwBind bind;
  bind.wr_id = request.wr_id;
  bind.send_flags = static_cast<unsigned>(request.send_flags);
  bind.mr = info.mr != nullptr ? windows_.find_region(info.mr->lkey) : nullptr;
  bind.address = info.addr;
  bind.length = info.length;
  bind.access = info.mw_access_flags;
  if (window == nullptr || (info.mr != nullptr && bind.mr == nullptr)) return EINVAL;
  std::uint32_t given = 0;
  if (const int error = bind_mw(window, bind, &given)) return error;
  return given == rkey ? 0 : EINVAL;
}

int WindowQp::bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) try {
  auto& shadow = *static_cast<Mw*>(window);
  Windows::Change change{qpn_, bind.wr_id, &shadow, ibv_inc_rkey(shadow.given_rkey), {}};
  device::MwBind wanted = bind;
  if (bind.mr != nullptr) wanted.mr = static_cast<const Mr*>(bind.mr)->inner;
  if (bind.length != 0 && bind.mr != nullptr)
    change.binding = {bind.mr->lkey(), bind.address, bind.length, bind.access, qpn_};
  const std::uint64_t number = windows_.note(change, capacity_);
  std::uint32_t real = 0;
  if (const int error = object_.bind_mw(shadow.inner, wanted, &real)) {
    windows_.take_back(qpn_, number);
    return error;
  }
  *rkey = numbers_ != nullptr ? numbers_->virtual_rkeys[real] : real;
  windows_.bound(shadow, number, *rkey);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

}  // namespace ferry::virt
