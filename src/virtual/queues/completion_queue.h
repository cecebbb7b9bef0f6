#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "virtual/messages/needs.h"
#include "virtual/queues/channel.h"
#include "virtual/queues/renamed_queues.h"
#include "virtual/shadows/objects.h"
#include "virtual/stop/calls.h"
#include "virtual/stop/gate.h"
#include "virtual/stop/returns.h"

namespace ferry::virt {

class Cq final : public Shadow<device::Cq> {
 public:
  Cq(device::Cq& object, const device::CqInit& init, Calls& calls, Returns& returns,
     device::EventSink& sink)
      : Shadow(object),
        init_(init),
        calls_(calls),
        returns_(returns),
        sink_(sink),
        queue_(&object) {}

  // From now on completions get the numbers that the application knows. `numbers` must stay valid.
  // Throws std::bad_alloc.
  void rename_by(const Numbers& numbers);
  // A UD QP uses the CQ for its receives: from now on datagrams are counted, and get the names by which
  // the application knows their senders. Threads may be polling. Throws std::bad_alloc.
  void look_at(Datagrams& datagrams);
  // The same for completions that are about memory windows.
  void look_at(Windows& windows);

  int poll(int count, ibv_wc* out) override {
    if (!gate_.enter()) [[unlikely]]
      return poll_slowly(count, out);
    const int taken = queue_->poll(count, out);
    gate_.leave();
    return taken;
  }
  int poll_one(ibv_wc* out, device::CompletionTimes* times) override;
  int take_one(ibv_wc* out, device::CompletionTimes* times) override;
  int arm(bool solicited_only) override;
  int resize(int cqe) override;
  int capacity() const override;
  // The capacity that the application asked for.
  int wanted_capacity() const { return init_.cqe; }
  // Those of Needs::CqFeatures that the application uses.
  std::uint32_t features() const {
    return (init_.timestamps ? Needs::kTimestamps : 0u) |
           (init_.wallclock ? Needs::kWallclock : 0u) |
           (init_.ignore_overrun ? Needs::kIgnoreOverrun : 0u);
  }
  int moderate(std::uint16_t count, std::uint16_t period) override;
  void acknowledge() override {
    if (channel() != nullptr) channel()->acknowledge(*this);
  }
  // Null: events of the CQ go to the EventSink.
  Channel* channel() const { return static_cast<Channel*>(init_.channel); }

  // The device has raised the event of the CQ. False: the event is not for the application. In a stop
  // some completions are not the application's; then sift() finds those that are, and raises the event.
  bool raised() {
    if (stops_.load(std::memory_order_acquire) > 0) return false;
    armed_.store(kNot, std::memory_order_relaxed);
    return true;
  }

  // Tells the application of an event.
  void raise();

  // Takes all completions from the device, and keeps them for the application.
  void keep_all();

  // --- A stop of the device behind. The gate is shut.

  Gate& gate() { return gate_; }
  // Is called before the gate is shut, because a CQ that is not stopped opens its gate (settle()).
  // resume() must follow.
  void stop();
  // Takes the completions that wait, and keeps those that are for the application. True: completions
  // waited, the application's or others.
  bool sweep();
  // Completions that have been kept before, and that the application has not polled yet, are signs that their QPs
  // are in use (Returns::note_use()).
  void keep_use();
  // The CQ of the device is about to end; the gate stays shut.
  void leave_device();
  // Gives the CqInit with which the CQ is made anew.
  device::CqInit remade() const;
  // The CQ has been made anew as `object`. 0 or errno.
  int enter_device(device::Cq& object);
  // Threads may poll again; they take the gate's lock as long as completions must be looked at.
  void resume();

 private:
  struct Kept {
    ibv_wc completion;
    device::CompletionTimes times;
  };
  enum Armed : std::uint8_t { kNot, kForSolicited, kForAny };

  int poll_slowly(int count, ibv_wc* out);
  int one(bool runs_engine, ibv_wc* out, device::CompletionTimes* times);
  // With the gate's lock:
  // Decides which path the next poll takes: opens the gate when no completion must be looked at any more.
  void settle();
  // Removes those of these new completions that are not for the application, and gives the number of the
  // others. In a stop, if there are others, raises the event of the CQ if it is armed.
  int sift(ibv_wc* completions, int count);
  bool sweep_locked();
  void put_renamed();
  // The same while threads may poll, if the device is there: the thread that polls shall own the gate, not the caller.
  void look();

  device::CqInit init_;
  Calls& calls_;
  Returns& returns_;
  device::EventSink& sink_;
  const Numbers* numbers_ = nullptr;  // null: no number has changed
  Datagrams* datagrams_ = nullptr;    // null: no UD QP has used the CQ for receives
  Windows* windows_ = nullptr;        // null: the context has had no memory windows
  std::unique_ptr<RenamedCq> renamed_;
  device::Cq* queue_;  // the object behind, or renamed_; null: the device behind is away
  Gate gate_;
  std::atomic<Armed> armed_{kNot};
  std::atomic<int> stops_{0};  // is changed with the gate's lock
  // Guarded by the gate's lock:
  std::deque<Kept> kept_;
  std::uint16_t moderated_count_ = 0, moderated_period_ = 0;  // 0: it is not moderated
};

}  // namespace ferry::virt
