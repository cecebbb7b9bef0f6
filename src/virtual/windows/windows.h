#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/memory_window.h"
#include "virtual/shadows/shadow_table.h"

namespace ferry::virt {

// What the memory windows of a context are bound to, so that they can be bound again on another device. A
// device does not tell: so binds and invalidations are noted when they are posted, and taken back when
// their completions tell that they failed; the completion of a receive tells that a peer has invalidated a
// window. All numbers are those that the application knows, unless they are said to be the device's. Any
// thread may call any function; a window lives while a function is about it.
class Windows {
 public:
  Windows(ShadowTable& shadows, DeviceBehind& device) : shadows_(shadows), device_(device) {}

  // Whether the application has ever had a window. Then the data path looks for requests and completions
  // that are about windows.
  bool are_used() const { return are_used_.load(std::memory_order_acquire); }
  void use() { are_used_.store(true, std::memory_order_release); }
  void add(Mw& window);
  void remove(Mw& window);
  // Whether a window has this handle.
  bool has(std::uint32_t handle);
  // Gives the window with this handle; null: there is none.
  Mw* find(std::uint32_t handle);
  // Gives the MR with this lkey; null: there is none.
  Mr* find_region(std::uint32_t lkey);

  // --- The data path (window_queue.h, renamed_queues.h)

  // A request that gives the window another state is about to be posted.
  struct Change {
    std::uint32_t qpn = 0;
    std::uint64_t wr_id = 0;
    Mw* window = nullptr;
    // The state after it:
    std::uint32_t rkey = 0;
    std::optional<Mw::Binding> binding;
  };
  // Gives the number of the change. `capacity`: how many requests the QP takes; those that were posted before
  // as many others are done.
  std::uint64_t note(const Change& change, std::size_t capacity);
  // The request was not posted.
  void take_back(std::uint32_t qpn, std::uint64_t number);
  // Completes *change, which an invalidation makes. False: no window has this rkey.
  bool invalidation_of(std::uint32_t rkey, Change* change);
  // The bind of a window of type 1, a change with this number, has given the window this key.
  void bound(Mw& window, std::uint64_t number, std::uint32_t rkey);
  // A completion, with the numbers that the application knows.
  void completed(const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS || (completion.wc_flags & IBV_WC_WITH_INV) != 0 ||
        completion.opcode == IBV_WC_BIND_MW || completion.opcode == IBV_WC_LOCAL_INV) [[unlikely]]
      take(completion);
  }

  // --- Objects that windows are bound to

  // The device has done all requests of the QP.
  void done(std::uint32_t qpn);
  // The QP was reset. The device decides what becomes of windows that it has bound to the QP; others will not
  // be bound again.
  void reset_qp(std::uint32_t qpn);
  // The QP was destroyed: no window is bound to it any more.
  void end_qp(std::uint32_t qpn);
  // As the device says, no window is bound to the MR: it was deregistered, or registered anew.
  void end_region(std::uint32_t lkey);
  // Whether windows of type 2 are bound to the QP.
  bool has_bound_to(std::uint32_t qpn) { return !bound_to(qpn).empty(); }

  // --- Another device. Nobody makes or destroys windows meanwhile.

  // The windows have got new objects behind, which have no binding yet. `comes_back`: a QP with this number
  // goes to RTS, so that the windows of type 2 that are bound to the QP can be bound again.
  template <typename ComesBack>
  void made_anew(ComesBack comes_back) {
    for (Mw* window : shadows_.all<Mw>()) {
      std::lock_guard lock(mutex_);
      auto& binding = window->state.binding;
      window->state.behind = Mw::Behind::kNew;
      if (binding && window->type == IBV_MW_TYPE_2 && !comes_back(binding->qpn)) binding.reset();
    }
  }
  // Enters the keys of all windows into the tables of the context. Throws std::bad_alloc.
  void enter_numbers();
  // The windows of type 1 that are bound, and those of type 2 that are bound to the QP.
  std::vector<Mw*> bound_of_type_1();
  std::vector<Mw*> bound_to(std::uint32_t qpn);
  Mw::State state(const Mw& window);
  // The window is bound behind as the application knows it.
  void bound_behind(Mw& window);
  // The window cannot be bound behind: it is bound to nothing.
  void lost(Mw& window);
  void released(Mw& window);

  // The keys of the windows of the PD that are other ones on the device.
  struct Key {
    std::uint32_t known = 0, real = 0;
  };
  std::vector<Key> keys_of(const device::Pd* pd);

 private:
  struct Posted {
    std::uint64_t number = 0;
    std::uint64_t wr_id = 0;
    Mw* window = nullptr;
    Mw::State before;
  };

  void take(const ibv_wc& completion);
  // With mutex_:
  Mw* window_of(std::uint32_t rkey);
  static void enter(Mw& window, const Mw::State& state);
  void undo(std::deque<Posted>& posted, std::deque<Posted>::iterator at);
  template <typename Is>
  std::vector<Mw*> bound(Is is);

  ShadowTable& shadows_;
  DeviceBehind& device_;
  std::atomic<bool> are_used_{false};
  std::mutex mutex_;  // guards what follows, and the states of the windows
  std::map<std::uint32_t, Mw*> by_handle_;
  std::map<std::uint32_t, Mw*> by_index_;  // by the index of their rkeys
  // By QPN: the changes of which no completion has come. The completion of a later change tells that they
  // are done; they need none of their own.
  std::map<std::uint32_t, std::deque<Posted>> posted_;
  std::uint64_t changes_ = 0;
};

}  // namespace ferry::virt
