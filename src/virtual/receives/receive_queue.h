#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <optional>

#include "device/objects.h"
#include "virtual/receives/posted_receives.h"
#include "virtual/receives/receive_index.h"
#include "virtual/stop/gate.h"

namespace ferry::virt {

// The receives of a QP or of an SRQ (`Target`). A device does not give receives back when it is left: so
// they are noted here, and those that were not consumed are posted again.
template <typename Target>
class ReceiveQueue {
 public:
  // The target takes `max_wr` receives of `max_sge` elements each. At least the latest `noted` receives stay
  // noted; `noted` is not less than `max_wr`. Throws std::bad_alloc.
  ReceiveQueue(std::uint32_t max_wr, std::uint32_t max_sge, std::uint32_t noted, Target& target)
      : max_wr_(max_wr), max_sge_(max_sge), target_(&target), noted_(noted, max_sge) {}

  // Data path: as Target::post_recv().
  int post(ibv_recv_wr* list, ibv_recv_wr** bad) {
    if (!gate_.enter()) [[unlikely]]
      return post_slowly(list, bad);
    const int error = target_->post_recv(list, bad);
    if (error == 0 && list->next == nullptr) [[likely]] {
      noted_.note(*list);
    } else {
      note_list(list, error != 0 ? *bad : nullptr);
    }
    gate_.leave();
    return error;
  }
  Gate& gate() { return gate_; }
  // The queue has room for another number of receives now; `noted` as above. Throws std::bad_alloc.
  void resize(std::uint32_t max_wr, std::uint32_t noted);
  // From now on receives go to `target`: the object behind, or the object that gives them its numbers
  // (renamed_queues.h). The gate is shut, its lock is held, or nobody posts.
  void direct(Target& target) { target_ = &target; }

  // --- A stop. The gate is shut.

  // From now on threads that post receives wait. `takes`: the queue is in a state in which it takes
  // receives.
  void wait(bool takes);
  // The receives that wait in the device are about to go, and are kept: they are the latest `count`.
  // Receives that are posted from now on are kept behind them. If receives are kept already, `count` is
  // ignored.
  void keep(std::uint32_t count);
  // As keep(); the target is about to end, too.
  void leave(std::uint32_t count);
  // Posts the receives that are kept and not posted yet. 0 or errno.
  int refill();
  // As refill(), and from now on the target gets receives as soon as they are posted.
  int pass();
  // The same, but drops the receives that are kept.
  void drop();

  // As PostedReceives::posted() and find(), for a thread that has the completion of a receive.
  std::uint32_t posted() const { return noted_.posted(); }
  std::optional<PostedReceives::Receive> find(std::uint32_t index);
  // As ReceiveIndex::find(), for such a thread.
  std::optional<PostedReceives::Receive> find(ReceiveIndex& index, std::uint64_t wr_id) {
    return index.find(noted_, wr_id);
  }

 private:
  // What happens to receives that the program posts.
  enum class Mode : std::uint8_t { kPass, kWait, kKeep };

  int post_slowly(ibv_recv_wr* list, ibv_recv_wr** bad);
  void note_list(const ibv_recv_wr* list, const ibv_recv_wr* end);
  // With the gate's lock:
  int keep_list(ibv_recv_wr* list, ibv_recv_wr** bad);
  void keep_locked(std::uint32_t count);
  int refill_locked();
  void pass_locked();

  Gate gate_;
  // Guarded by the gate:
  std::uint32_t max_wr_;
  const std::uint32_t max_sge_;
  Target* target_;
  PostedReceives noted_;
  std::uint32_t kept_ = 0;      // how many of the latest receives are to be posted again
  std::uint32_t refilled_ = 0;  // how many of these the target has got already
  bool takes_ = true;
  Mode mode_ = Mode::kPass;
  std::condition_variable mode_changed_;
};

}  // namespace ferry::virt
