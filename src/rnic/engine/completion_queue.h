#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "device/objects.h"
#include "rnic/memory/memory.h"

// Completion queues (IBTA vol. 1 clause 11.4.2).
namespace ferry::rnic {

class Engine;

class CompletionQueue final : public device::Cq {
 public:
  static constexpr int kMaxEntries = (1 << 22) - 1;

  static constexpr std::uint16_t kMaxModeration = 0xFFFF;  // of completions and of microseconds

  // How many entries a CQ gets when `cqe` are asked for: 2^n - 1, as with the hardware that
  // programs were written for.
  static int rounded(int cqe);

  CompletionQueue(Engine& engine, device::EventSink& sink, Handle number,
                  const device::CqInit& init);

  ~CompletionQueue() override;

  int poll(int count, ibv_wc* out) override;
  int poll_one(ibv_wc* out, device::CompletionTimes* times) override;
  int take_one(ibv_wc* out, device::CompletionTimes* times) override;
  int arm(bool solicited_only) override;
  int resize(int cqe) override;
  int capacity() const override;
  int moderate(std::uint16_t count, std::uint16_t period) override;

  // Adds a completion, and has the event raised that an arm() asked for. `notable`: solicited or
  // failed. False: there is no room, and the CQ is in error from now on; IBV_EVENT_CQ_ERR is raised
  // once, and what the CQ holds can still be polled. A CQ that ignores overruns loses its oldest
  // completion instead. Called under the engine's lock.
  bool add(const ibv_wc& completion, bool notable);
  // Raises the event that an arm() asked for. CompletionEvents calls this when the engine is done.
  void raise() { sink_.completion(*this); }
  // When the event that moderation holds back is due; kNever: none is held. raise_held() has that
  // event raised. Both are called under the engine's lock.
  transport::Time event_at() const { return event_at_; }
  void raise_held();
  // Removes the completions of a QP that is destroyed or reset.
  void remove_qp(std::uint32_t qpn);

  bool overflowed() const { return overflowed_.load(std::memory_order_relaxed); }
  enum class Armed : std::uint8_t { kNo = 0, kSolicited = 1, kAny = 2 };
  bool armed() const { return armed_.load(std::memory_order_relaxed) != Armed::kNo; }

  // For records: a copy of what waits, which restore() puts back. False: it does not fit.
  struct Moderation {
    std::uint16_t count = 0, period = 0;
    std::uint32_t held = 0;  // completions since the CQ was armed
    bool is_on() const { return count > 1 && period > 0; }
  };
  struct Contents {
    Armed armed = Armed::kNo;
    bool overflowed = false;
    Moderation moderation;
    std::vector<ibv_wc> completions;
    std::vector<device::CompletionTimes> times;  // of each completion; empty without timestamps
  };
  Contents contents() const;
  bool restore(const Contents& contents);

  const Handle handle;
  const bool timestamps;
  const bool ignore_overrun;
  std::atomic<std::uint32_t> users{0};  // XRC SRQs and QPs; a QP counts for each of its queues

 private:
  // A ring of completions, and of their times when the CQ has timestamps.
  struct Ring {
    std::vector<ibv_wc> completions;
    std::vector<device::CompletionTimes> times;
  };
  Ring make_ring(int cqe) const;
  void copy(std::uint32_t from, Ring& to, std::uint32_t at) const;
  std::uint32_t mask() const { return static_cast<std::uint32_t>(ring_.completions.size() - 1); }

  int take(int count, ibv_wc* out, device::CompletionTimes* times);
  int poll(int count, ibv_wc* out, device::CompletionTimes* times);
  void set_armed(Armed value);  // under mutex_
  // Counts one completion that the CQ is armed for. True: the event is due. Under mutex_.
  bool reaches_event();
  void disarm();  // after the event, under mutex_

  Engine& engine_;
  device::EventSink& sink_;
  mutable std::mutex mutex_;
  Ring ring_;               // one entry more than the capacity: a power of two
  std::uint32_t head_ = 0;  // next to be polled
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<Armed> armed_{Armed::kNo};
  std::atomic<bool> overflowed_{false};
  Moderation moderation_;                         // written under both locks
  transport::Time event_at_ = transport::kNever;  // under the engine's lock
};

}  // namespace ferry::rnic
