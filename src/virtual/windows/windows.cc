#include "virtual/windows/windows.h"

#include <algorithm>

namespace ferry::virt {
namespace {

std::uint32_t index_of(std::uint32_t rkey) {
  return rkey >> 8;
}

}  // namespace

void Windows::add(Mw& window) {
  std::lock_guard lock(mutex_);
  by_handle_[window.handle()] = &window;
  by_index_[index_of(window.state.rkey)] = &window;
}

void Windows::remove(Mw& window) {
  std::lock_guard lock(mutex_);
  const auto is_it = [&](const auto& entry) { return entry.second == &window; };
  std::erase_if(by_handle_, is_it);  // another window may have got the handle by now, or the index
  std::erase_if(by_index_, is_it);
  for (auto& [qpn, posted] : posted_)
    std::erase_if(posted, [&](const Posted& each) { return each.window == &window; });
}

bool Windows::has(std::uint32_t handle) {
  return find(handle) != nullptr;
}

Mw* Windows::find(std::uint32_t handle) {
  std::lock_guard lock(mutex_);
  const auto found = by_handle_.find(handle);
  return found != by_handle_.end() ? found->second : nullptr;
}

Mr* Windows::find_region(std::uint32_t lkey) {
  Mr* found = nullptr;
  shadows_.for_each<Mr>([&](Mr& region) {
    if (region.lkey() == lkey) found = &region;
  });
  return found;
}

Mw* Windows::window_of(std::uint32_t rkey) {
  const auto found = by_index_.find(index_of(rkey));
  return found != by_index_.end() ? found->second : nullptr;
}

// --- The data path

// The application gives a window of type 2 its keys itself.
void Windows::enter(Mw& window, const Mw::State& state) {
  window.state = state;
  if (window.type == IBV_MW_TYPE_2) window.given_rkey = state.rkey;
}

std::uint64_t Windows::note(const Change& change, std::size_t capacity) {
  std::lock_guard lock(mutex_);
  std::deque<Posted>& posted = posted_[change.qpn];
  posted.push_back({++changes_, change.wr_id, change.window, change.window->state});
  if (posted.size() > capacity) posted.pop_front();
  enter(*change.window, {change.rkey, change.binding, changes_, Mw::Behind::kSame});
  return changes_;
}

// A later change of the window begins with the state before the one that is undone.
void Windows::undo(std::deque<Posted>& posted, std::deque<Posted>::iterator at) {
  const auto later = std::find_if(at + 1, posted.end(),
                                  [&](const Posted& each) { return each.window == at->window; });
  if (later != posted.end()) {
    later->before = at->before;
  } else if (at->window->state.change == at->number) {
    enter(*at->window, at->before);
  }
  posted.erase(at);
}

void Windows::take_back(std::uint32_t qpn, std::uint64_t number) {
  std::lock_guard lock(mutex_);
  std::deque<Posted>& posted = posted_[qpn];
  const auto found = std::find_if(posted.begin(), posted.end(),
                                  [&](const Posted& each) { return each.number == number; });
  if (found != posted.end()) undo(posted, found);
}

bool Windows::invalidation_of(std::uint32_t rkey, Change* change) {
  std::lock_guard lock(mutex_);
  change->window = window_of(rkey);
  if (change->window == nullptr) return false;
  change->rkey = change->window->state.rkey;
  return true;
}

void Windows::bound(Mw& window, std::uint64_t number, std::uint32_t rkey) {
  std::lock_guard lock(mutex_);
  if (window.state.change == number) window.state.rkey = rkey;
}

// A QP carries out its requests in order, and none after one that fails.
void Windows::take(const ibv_wc& completion) {
  std::lock_guard lock(mutex_);
  const bool succeeded = completion.status == IBV_WC_SUCCESS;
  if (succeeded && (completion.wc_flags & IBV_WC_WITH_INV) != 0) {
    Mw* window = window_of(completion.invalidated_rkey);
    if (window != nullptr && window->state.rkey == completion.invalidated_rkey)
      window->state.binding.reset();
    return;
  }
  const auto qp = posted_.find(completion.qp_num);
  if (qp == posted_.end()) return;
  std::deque<Posted>& posted = qp->second;
  const auto is_it = [&](const Posted& each) { return each.wr_id == completion.wr_id; };
  if (succeeded) {
    const auto found = std::find_if(posted.begin(), posted.end(), is_it);
    if (found != posted.end()) posted.erase(posted.begin(), found + 1);
    return;
  }
  const auto latest = std::find_if(posted.rbegin(), posted.rend(), is_it);
  if (latest != posted.rend()) undo(posted, latest.base() - 1);
}

// --- Objects that windows are bound to

void Windows::done(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  posted_.erase(qpn);
}

void Windows::reset_qp(std::uint32_t qpn) {
  for (Mw* window : bound_to(qpn)) {
    std::lock_guard lock(mutex_);
    if (window->state.behind != Mw::Behind::kSame) window->state.binding.reset();
  }
  done(qpn);
}

void Windows::end_qp(std::uint32_t qpn) {
  for (Mw* window : bound_to(qpn)) {
    std::lock_guard lock(mutex_);
    window->state.binding.reset();
  }
  done(qpn);
}

void Windows::end_region(std::uint32_t lkey) {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, window] : by_handle_) {
    auto& binding = window->state.binding;
    if (binding && binding->lkey == lkey) binding.reset();
  }
}

template <typename Is>
std::vector<Mw*> Windows::bound(Is is) {
  std::vector<Mw*> found;
  std::lock_guard lock(mutex_);
  for (const auto& [handle, window] : by_handle_) {
    if (window->state.binding && is(*window)) found.push_back(window);
  }
  return found;
}

std::vector<Mw*> Windows::bound_of_type_1() {
  return bound([](const Mw& window) { return window.type == IBV_MW_TYPE_1; });
}

std::vector<Mw*> Windows::bound_to(std::uint32_t qpn) {
  return bound([&](const Mw& window) {
    return window.type == IBV_MW_TYPE_2 && window.state.binding->qpn == qpn;
  });
}

// --- Another device

// A window of type 2 that is to be bound again gets another variant of its new key by that: the device may
// refuse a bind that leaves the key (rdma_rxe before Linux 6.0).
void Windows::enter_numbers() {
  for (Mw* window : shadows_.all<Mw>()) {
    std::lock_guard lock(mutex_);
    const bool is_to_be_bound = window->state.behind == Mw::Behind::kNew &&
                                window->type == IBV_MW_TYPE_2 && window->state.binding;
    const std::uint32_t fresh = window->inner->rkey();
    const std::uint32_t real = is_to_be_bound ? ibv_inc_rkey(fresh) : fresh;
    device_.numbers->rkeys.set_index(window->state.rkey, real);
    device_.numbers->virtual_rkeys.set_index(real, window->state.rkey);
  }
}

Mw::State Windows::state(const Mw& window) {
  std::lock_guard lock(mutex_);
  return window.state;
}

void Windows::bound_behind(Mw& window) {
  std::lock_guard lock(mutex_);
  window.state.behind = Mw::Behind::kSame;
}

void Windows::lost(Mw& window) {
  std::lock_guard lock(mutex_);
  window.state.binding.reset();
}

void Windows::released(Mw& window) {
  std::lock_guard lock(mutex_);
  window.state.behind = Mw::Behind::kReleased;
}

std::vector<Windows::Key> Windows::keys_of(const device::Pd* pd) {
  std::vector<Key> keys;
  if (device_.numbers == nullptr) return keys;
  std::lock_guard lock(mutex_);
  for (const auto& [handle, window] : by_handle_) {
    const Key key{window->state.rkey, device_.numbers->rkeys[window->state.rkey]};
    if (window->pd == pd && key.known != key.real) keys.push_back(key);
  }
  return keys;
}

}  // namespace ferry::virt
