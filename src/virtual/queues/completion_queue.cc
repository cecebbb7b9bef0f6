#include "virtual/queues/completion_queue.h"

#include <cerrno>
#include <utility>

namespace ferry::virt {

void Cq::settle() {
  if (gate_.is_shut() && stops_.load(std::memory_order_relaxed) == 0 && kept_.empty() &&
      !returns_.sifts())
    gate_.open();
}

int Cq::sift(ibv_wc* completions, int count) {
  if (returns_.sifts()) count = returns_.sift(completions, count);
  if (count == 0 || stops_.load(std::memory_order_relaxed) == 0) return count;
  // A completion does not tell whether it is a solicited one; an event too many does no harm.
  if (armed_.exchange(kNot, std::memory_order_relaxed) == kNot) return count;
  raise();
  return count;
}

void Cq::raise() {
  if (channel() != nullptr) {
    channel()->ring(*this);
  } else {
    sink_.completion(*this);
  }
}

int Cq::poll_slowly(int count, ibv_wc* out) {
  const auto lock = gate_.lock();
  int taken = 0;
  for (; taken < count && !kept_.empty(); ++taken) {
    out[taken] = kept_.front().completion;
    kept_.pop_front();
  }
  if (taken < count && queue_ != nullptr) {
    const int fresh = queue_->poll(count - taken, out + taken);
    if (fresh < 0 && taken == 0) return fresh;
    if (fresh > 0) taken += sift(out + taken, fresh);
  }
  settle();
  return taken;
}

// poll_one() if `runs_engine`, else take_one().
int Cq::one(bool runs_engine, ibv_wc* out, device::CompletionTimes* times) {
  const auto take = [&] {
    return runs_engine ? queue_->poll_one(out, times) : queue_->take_one(out, times);
  };
  if (gate_.enter()) [[likely]] {
    const int taken = take();
    gate_.leave();
    return taken;
  }
  const auto lock = gate_.lock();
  if (!kept_.empty()) {
    *out = kept_.front().completion;
    *times = kept_.front().times;
    kept_.pop_front();
    return 1;
  }
  settle();
  if (queue_ == nullptr) return 0;
  for (;;) {
    const int taken = take();
    if (taken <= 0 || sift(out, taken) > 0) return taken;
  }
}

int Cq::poll_one(ibv_wc* out, device::CompletionTimes* times) {
  return one(true, out, times);
}

int Cq::take_one(ibv_wc* out, device::CompletionTimes* times) {
  return one(false, out, times);
}

int Cq::arm(bool solicited_only) {
  // armed_ is set first: the event may come before arm() of the device returns.
  if (gate_.enter()) [[likely]] {
    armed_.store(solicited_only ? kForSolicited : kForAny, std::memory_order_relaxed);
    const int error = inner->arm(solicited_only);
    gate_.leave();
    return error;
  }
  const auto lock = gate_.lock();
  armed_.store(solicited_only ? kForSolicited : kForAny, std::memory_order_relaxed);
  return inner != nullptr ? inner->arm(solicited_only) : 0;
}

int Cq::resize(int cqe) {
  const Calls::Call call(calls_);
  const int error = inner->resize(cqe);
  if (error == 0) init_.cqe = cqe;
  return error;
}

int Cq::capacity() const {
  const Calls::Call call(calls_);
  return inner->capacity();
}

int Cq::moderate(std::uint16_t count, std::uint16_t period) {
  const Calls::Call call(calls_);
  if (const int error = inner->moderate(count, period)) return error;
  moderated_count_ = count;
  moderated_period_ = period;
  return 0;
}

bool Cq::sweep_locked() {
  bool some = false;
  Kept kept{};
  for (;;) {
    const int taken = init_.timestamps ? queue_->poll_one(&kept.completion, &kept.times)
                                       : queue_->poll(1, &kept.completion);
    if (taken <= 0) return some;
    some = true;
    if (sift(&kept.completion, 1) > 0) kept_.push_back(kept);
  }
}

void Cq::keep_all() {
  const auto lock = gate_.lock();
  gate_.shut_locked();  // nothing is kept behind a gate that is not shut
  if (inner != nullptr) sweep_locked();
  settle();
}

void Cq::stop() {
  if (channel() != nullptr) channel()->stop();
  const auto lock = gate_.lock();
  stops_.fetch_add(1, std::memory_order_release);
}

bool Cq::sweep() {
  const auto lock = gate_.lock();
  return sweep_locked();
}

void Cq::keep_use() {
  const auto lock = gate_.lock();
  for (const Kept& kept : kept_) returns_.keep_use(kept.completion.qp_num);
}

void Cq::leave_device() {
  const auto lock = gate_.lock();
  inner = queue_ = nullptr;
}

device::CqInit Cq::remade() const {
  device::CqInit init = init_;
  init.channel = behind(init_.channel);
  return init;
}

void Cq::put_renamed() {
  renamed_ = std::make_unique<RenamedCq>(*inner, numbers_, datagrams_, windows_);
  queue_ = renamed_.get();
}

void Cq::rename_by(const Numbers& numbers) {
  const auto lock = gate_.lock();
  numbers_ = &numbers;
  look();
}

void Cq::look() {
  if (inner != nullptr) put_renamed();
  if (!gate_.is_shut()) gate_.open();
}

void Cq::look_at(Datagrams& datagrams) {
  const auto lock = gate_.lock();
  if (std::exchange(datagrams_, &datagrams) == nullptr) look();
}

void Cq::look_at(Windows& windows) {
  const auto lock = gate_.lock();
  if (std::exchange(windows_, &windows) == nullptr) look();
}

int Cq::enter_device(device::Cq& object) {
  const auto lock = gate_.lock();
  attach(object);
  if (moderated_count_ != 0 || moderated_period_ != 0) {
    // A device without moderation raises more events than the application needs.
    const int error = inner->moderate(moderated_count_, moderated_period_);
    return error == EOPNOTSUPP ? 0 : error;
  }
  return 0;
}

void Cq::resume() {
  if (channel() != nullptr) channel()->collect();
  const auto lock = gate_.lock();
  // Arms the CQ again: the device may have raised the event for a completion that is not the
  // application's. The sweep finds completions that came before the CQ was armed again.
  const Armed armed = armed_.load(std::memory_order_relaxed);
  if (armed != kNot && inner != nullptr) inner->arm(armed == kForSolicited);
  if (inner != nullptr) sweep_locked();
  stops_.fetch_sub(1, std::memory_order_release);
  if (channel() != nullptr) channel()->resume();
  settle();
}

}  // namespace ferry::virt
