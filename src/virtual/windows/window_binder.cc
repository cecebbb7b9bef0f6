#include "virtual/windows/window_binder.h"

#include <cerrno>
#include <chrono>
#include <map>
#include <thread>

#include "virtual/stop/self_connection.h"

namespace ferry::virt {
namespace {

using std::chrono::steady_clock;

// How long a bind or an invalidation may take. The device has nothing to wait for.
constexpr std::chrono::milliseconds kLimit{5000};

// Waits for is_done(). False: it took too long.
template <typename IsDone>
bool await(IsDone is_done) {
  const auto deadline = steady_clock::now() + kLimit;
  while (!is_done()) {
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

bool WindowBinder::is_allowed(const Mw::Binding& binding, const device::Pd* pd) {
  const Mr* region = windows_.find_region(binding.lkey);
  if (region == nullptr || region->is_null) return false;
  const device::MrInit& init = region->init;
  const std::uint64_t begin = (init.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : init.iova;
  const bool writes = (binding.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return init.pd == pd && (init.access & IBV_ACCESS_MW_BIND) != 0 &&
         (!writes || (init.access & IBV_ACCESS_LOCAL_WRITE) != 0) && binding.address >= begin &&
         binding.length <= init.length && binding.address - begin <= init.length - binding.length;
}

// --- Windows of type 1

int WindowBinder::bind_some_of_type_1(device::Context& device, const std::vector<Mw*>& windows,
                                      std::size_t* done) {
  SelfConnection connection(device);
  if (const int error = connection.open(*behind(windows[0]->pd), nullptr, 1)) return error;
  for (bool binds = true; binds && *done < windows.size(); ++*done) {
    Mw& window = *windows[*done];
    const Mw::Binding binding = *windows_.state(window).binding;
    binds = is_allowed(binding, window.pd);
    device::MwBind bind;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.mr = binds ? windows_.find_region(binding.lkey)->inner : nullptr;
    bind.address = binding.address;
    bind.length = binding.length;
    bind.access = binding.access;
    std::uint32_t rkey = 0;
    ibv_wc completion{};
    completion.status = IBV_WC_GENERAL_ERR;
    binds = binds && connection.qp().bind_mw(window.inner, bind, &rkey) == 0 &&
            await([&] { return connection.cq().poll(1, &completion) != 0; }) &&
            completion.status == IBV_WC_SUCCESS;
    if (binds) {
      windows_.bound_behind(window);
    } else {
      windows_.lost(window);
    }
  }
  return 0;
}

int WindowBinder::bind_all_of_type_1(device::Context& device) {
  std::map<const device::Pd*, std::vector<Mw*>> by_pd;
  for (Mw* window : windows_.bound_of_type_1()) by_pd[window->pd].push_back(window);
  for (const auto& [pd, windows] : by_pd) {
    // A QP that has failed binds no further windows.
    for (std::size_t done = 0; done < windows.size();) {
      if (const int error = bind_some_of_type_1(device, windows, &done)) return error;
    }
  }
  return 0;
}

// --- Windows of type 2

bool WindowBinder::carry_out(device::Qp& object, ibv_send_wr* request, const Sweep& sweep) {
  request->wr_id = returns_.add_marker(/*asks=*/true);
  request->send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (object.post_send(request, &bad) != 0) {
    returns_.withdraw(request->wr_id);
    return false;
  }
  const bool is_back = await([&] {
    sweep();
    return !returns_.is_out(request->wr_id);
  });
  return is_back && !returns_.has_failed(request->wr_id);
}

bool WindowBinder::bind(device::Qp& object, std::uint32_t qpn, const Numbers* numbers,
                        const Sweep& sweep) {
  for (Mw* window : windows_.bound_to(qpn)) {
    const Mw::State state = windows_.state(*window);
    if (state.behind == Mw::Behind::kSame || !state.binding) continue;
    const Mw::Binding& binding = *state.binding;
    if (!is_allowed(binding, window->pd)) {
      windows_.lost(*window);
      continue;
    }
    const std::uint32_t rkey = numbers != nullptr ? numbers->rkeys[state.rkey] : state.rkey;
    ibv_mw mw{};
    mw.handle = window->inner->handle();
    mw.rkey = state.behind == Mw::Behind::kNew ? window->inner->rkey() : rkey;
    ibv_mr mr{};
    mr.lkey = numbers != nullptr ? numbers->lkeys[binding.lkey] : binding.lkey;
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {&mw, rkey, {&mr, binding.address, binding.length, binding.access}};
    if (!carry_out(object, &request, sweep)) {
      windows_.lost(*window);
      return false;
    }
    windows_.bound_behind(*window);
  }
  return true;
}

void WindowBinder::release(device::Qp& object, std::uint32_t qpn, const Numbers* numbers,
                           const Sweep& sweep) {
  for (Mw* window : windows_.bound_to(qpn)) {
    const Mw::State state = windows_.state(*window);
    if (state.behind != Mw::Behind::kSame) continue;
    ibv_send_wr request{};
    request.opcode = IBV_WR_LOCAL_INV;
    request.invalidate_rkey = numbers != nullptr ? numbers->rkeys[state.rkey] : state.rkey;
    if (carry_out(object, &request, sweep)) {
      windows_.released(*window);
    } else {
      windows_.lost(*window);  // the QP has failed
    }
  }
}

}  // namespace ferry::virt
