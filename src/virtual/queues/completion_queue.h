#pragma once

#include <atomic>
#include <deque>
#include <memory>

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

  // From now on completions get the numbers that the application knows. `numbers` lives on. Throws
  // std::bad_alloc.
  void rename_by(const Numbers& numbers);
  // A UD QP has the CQ for its receives: from now on datagrams are counted, and come from whom the
  // application knows. Threads may be polling. Throws std::bad_alloc.
  void look_at(Datagrams& datagrams);

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
  // As the application asked for it.
  int wanted_capacity() const { return init_.cqe; }
  int moderate(std::uint16_t count, std::uint16_t period) override;
  void acknowledge() override {
    if (channel() != nullptr) channel()->acknowledge(*this);
  }
  // Null: its events go to the EventSink.
  Channel* channel() const { return static_cast<Channel*>(init_.channel); }

  // The device has raised its event. False: this is not for the application. In a stop some
  // completions are not the application's; then the shadow itself looks which are, and raises it.
  bool raised() {
    if (stops_.load(std::memory_order_acquire) > 0) return false;
    armed_.store(kNot, std::memory_order_relaxed);
    return true;
  }

  // Takes all completions from the device, and keeps them for the application.
  void keep_all();

  // --- A stop of the device behind. The gate is shut.

  Gate& gate() { return gate_; }
  // Before the gate is shut: a CQ that is not stopped opens its own. resume() must follow.
  void stop();
  // Keeps the completions that wait, for the application. True: there were some, of whatever kind.
  bool sweep();
  // The CQ of the device is about to end; the gate stays shut.
  void leave_device();
  // How the CQ is made anew, and that it was. 0 or errno.
  device::CqInit remade() const;
  int enter_device(device::Cq& object);
  // Threads go in again, by the mutex as long as completions must be looked at.
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
  // By which way the next thread comes.
  void settle();
  // Takes what is not for the application out of these new completions, and gives the count of the
  // others; raises the event of the CQ if there are some.
  int sift(ibv_wc* completions, int count);
  bool sweep_locked();
  void put_renamed();

  device::CqInit init_;
  Calls& calls_;
  Returns& returns_;
  device::EventSink& sink_;
  const Numbers* numbers_ = nullptr;  // null: no number has changed
  Datagrams* datagrams_ = nullptr;    // null: no UD QP has had the CQ
  std::unique_ptr<RenamedCq> renamed_;
  device::Cq* queue_;  // the object behind, or renamed_
  Gate gate_;
  std::atomic<Armed> armed_{kNot};
  std::atomic<int> stops_{0};  // changes with the gate's lock
  // Guarded by the gate's lock:
  std::deque<Kept> kept_;
  std::uint16_t moderated_count_ = 0, moderated_period_ = 0;  // 0: it is not moderated
};

}  // namespace ferry::virt
