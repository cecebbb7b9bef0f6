#include "rnic/engine/completion_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "rnic/engine/engine.h"

namespace ferry::rnic {

int CompletionQueue::rounded(int cqe) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(cqe) + 1) - 1);
}

CompletionQueue::Ring CompletionQueue::make_ring(int cqe) const {
  const std::size_t entries = static_cast<std::size_t>(rounded(cqe)) + 1;
  return {std::vector<ibv_wc>(entries),
          std::vector<device::CompletionTimes>(timestamps ? entries : 0)};
}

void CompletionQueue::copy(std::uint32_t from, Ring& to, std::uint32_t at) const {
  to.completions[at] = ring_.completions[from];
  if (timestamps) to.times[at] = ring_.times[from];
}

CompletionQueue::CompletionQueue(Engine& engine, device::EventSink& sink, Handle number,
                                 const device::CqInit& init)
    : handle(number),
      timestamps(init.timestamps),
      ignore_overrun(init.ignore_overrun),
      engine_(engine),
      sink_(sink),
      ring_(make_ring(init.cqe)) {}

CompletionQueue::~CompletionQueue() {
  if (armed()) engine_.events().disarmed();
}

void CompletionQueue::set_armed(Armed value) {
  const bool before = armed();
  armed_.store(value, std::memory_order_relaxed);
  if (!before && value != Armed::kNo) engine_.events().armed();
  if (before && value == Armed::kNo) engine_.events().disarmed();
}

int CompletionQueue::capacity() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(mask());
}

int CompletionQueue::take(int count, ibv_wc* out, device::CompletionTimes* times) {
  if (waiting_.load(std::memory_order_acquire) == 0) return 0;
  std::lock_guard lock(mutex_);
  const std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
  const std::uint32_t taken = std::min(waiting, static_cast<std::uint32_t>(count));
  for (std::uint32_t i = 0; i < taken; ++i) {
    const std::uint32_t at = (head_ + i) & mask();
    out[i] = ring_.completions[at];
    if (times != nullptr && timestamps) times[i] = ring_.times[at];
  }
  head_ += taken;
  waiting_.store(waiting - taken, std::memory_order_relaxed);
  return static_cast<int>(taken);
}

int CompletionQueue::poll(int count, ibv_wc* out, device::CompletionTimes* times) {
  if (engine_.abandoned()) return -ENODEV;
  if (count <= 0) return count == 0 ? 0 : -EINVAL;
  int taken = take(count, out, times);
  if (taken > 0) return taken;
  if (overflowed()) return -EOVERFLOW;
  engine_.run_for_poller();
  taken = take(count, out, times);
  return taken == 0 && overflowed() ? -EOVERFLOW : taken;
}

int CompletionQueue::poll(int count, ibv_wc* out) {
  return poll(count, out, nullptr);
}

int CompletionQueue::poll_one(ibv_wc* out, device::CompletionTimes* times) {
  *times = {};
  return poll(1, out, times);
}

int CompletionQueue::take_one(ibv_wc* out, device::CompletionTimes* times) {
  if (engine_.abandoned()) return -ENODEV;
  *times = {};
  const int taken = take(1, out, times);
  return taken == 0 && overflowed() ? -EOVERFLOW : taken;
}

int CompletionQueue::arm(bool solicited_only) {
  if (engine_.abandoned()) return ENODEV;
  {
    std::lock_guard lock(mutex_);
    // A request for any completion outweighs one for solicited completions (clause 11.4.2.2).
    if (!solicited_only) {
      set_armed(Armed::kAny);
    } else if (!armed()) {
      set_armed(Armed::kSolicited);
    }
  }
  engine_.listen();
  return 0;
}

int CompletionQueue::resize(int cqe) try {
  if (engine_.abandoned()) return ENODEV;
  if (cqe < 1 || cqe > kMaxEntries) return EINVAL;
  Ring ring = make_ring(cqe);
  std::lock_guard lock(mutex_);
  const std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
  if (waiting > ring.completions.size() - 1) return EINVAL;
  for (std::uint32_t i = 0; i < waiting; ++i) copy((head_ + i) & mask(), ring, i);
  std::swap(ring_, ring);
  head_ = 0;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

bool CompletionQueue::add(const ibv_wc& completion, bool notable) {
  std::unique_lock lock(mutex_);
  std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
  if (waiting == mask() && ignore_overrun) {
    ++head_;
    --waiting;
  } else if (waiting == mask() || overflowed()) {
    const bool first = !overflowed_.exchange(true, std::memory_order_relaxed);
    lock.unlock();
    if (first) sink_.asynchronous(IBV_EVENT_CQ_ERR, this);
    return false;
  }
  const std::uint32_t at = (head_ + waiting) & mask();
  ring_.completions[at] = completion;
  if (timestamps) {
    Environment& environment = engine_.environment();
    ring_.times[at] = {static_cast<std::uint64_t>(environment.now().count()),
                       static_cast<std::uint64_t>(environment.wall_clock().count())};
  }
  waiting_.store(waiting + 1, std::memory_order_release);
  const Armed armed = armed_.load(std::memory_order_relaxed);
  const bool counts = armed == Armed::kAny || (armed == Armed::kSolicited && notable);
  const bool notify = counts && reaches_event();
  if (notify) disarm();
  lock.unlock();
  if (notify) engine_.events().notify(this);
  return true;
}

bool CompletionQueue::reaches_event() {
  // A suspended engine starts no timer: after a move the clock may be another one.
  if (!moderation_.is_on() || engine_.suspended()) return true;
  if (++moderation_.held >= moderation_.count) return true;
  if (event_at_ == transport::kNever) {
    event_at_ = engine_.now() + std::chrono::microseconds(moderation_.period);
  }
  return false;
}

void CompletionQueue::disarm() {
  set_armed(Armed::kNo);
  moderation_.held = 0;
  event_at_ = transport::kNever;
}

void CompletionQueue::raise_held() {
  {
    std::lock_guard lock(mutex_);
    disarm();
  }
  engine_.events().notify(this);
}

int CompletionQueue::moderate(std::uint16_t count, std::uint16_t period) try {
  if (engine_.abandoned()) return ENODEV;
  Engine::Lock in_engine(engine_);
  const Moderation wanted{count, period, moderation_.held};
  if (wanted.is_on()) engine_.events().add_moderated(this);
  {
    std::lock_guard lock(mutex_);
    moderation_ = wanted;
  }
  if (!wanted.is_on()) engine_.events().forget_moderated(this);
  if (wanted.held > 0 && (!wanted.is_on() || wanted.held >= count)) raise_held();
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void CompletionQueue::remove_qp(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  const std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < waiting; ++i) {
    const std::uint32_t at = (head_ + i) & mask();
    if (ring_.completions[at].qp_num == qpn) continue;
    if (kept != i) copy(at, ring_, (head_ + kept) & mask());
    ++kept;
  }
  waiting_.store(kept, std::memory_order_relaxed);
}

CompletionQueue::Contents CompletionQueue::contents() const {
  std::lock_guard lock(mutex_);
  Contents contents;
  contents.armed = armed_.load(std::memory_order_relaxed);
  contents.overflowed = overflowed();
  contents.moderation = moderation_;
  const std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
  contents.completions.reserve(waiting);
  for (std::uint32_t i = 0; i < waiting; ++i) {
    const std::uint32_t at = (head_ + i) & mask();
    contents.completions.push_back(ring_.completions[at]);
    if (timestamps) contents.times.push_back(ring_.times[at]);
  }
  return contents;
}

bool CompletionQueue::restore(const Contents& contents) {
  Engine::Lock in_engine(engine_);
  std::lock_guard lock(mutex_);
  if (contents.completions.size() > mask()) return false;
  if (timestamps && contents.times.size() != contents.completions.size()) return false;
  std::copy(contents.completions.begin(), contents.completions.end(), ring_.completions.begin());
  if (timestamps) std::copy(contents.times.begin(), contents.times.end(), ring_.times.begin());
  head_ = 0;
  waiting_.store(static_cast<std::uint32_t>(contents.completions.size()),
                 std::memory_order_release);
  set_armed(contents.armed);
  if (contents.moderation.is_on()) engine_.events().add_moderated(this);
  moderation_ = contents.moderation;
  overflowed_.store(contents.overflowed, std::memory_order_relaxed);
  return true;
}

}  // namespace ferry::rnic
