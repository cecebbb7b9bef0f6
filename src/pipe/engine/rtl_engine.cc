#include "pipe/engine/rtl_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/failure.h"

namespace ferry::pipe {
namespace {

// No copy takes a hundredth of this.
constexpr std::uint64_t kHang = 1'000'000;

// Pointers of PD Stack count modulo twice the depth.
std::uint64_t pointer(std::uint64_t count) {
  return count % (2 * std::uint64_t{PdStackModel::kDepth});
}

std::uint16_t register_of(std::uint16_t first, unsigned queue) {
  return static_cast<std::uint16_t>(first + 8 * queue);
}

}  // namespace

// Aligned as PD Stack's longest request.
struct alignas(512) RtlEngine::Memory {
  Entry submissions[PdStackModel::kQueues][PdStackModel::kDepth];
  Entry completions[PdStackModel::kQueues][PdStackModel::kDepth];
};

RtlEngine::RtlEngine(const Settings& settings)
    : settings_(settings),
      model_(settings.model),
      memory_(std::make_unique<Memory>()),
      pointers_(settings.queues) {
  model_.write_register(PdStackModel::kSubmissionBase,
                        reinterpret_cast<std::uint64_t>(memory_->submissions));
  model_.write_register(PdStackModel::kCompletionBase,
                        reinterpret_cast<std::uint64_t>(memory_->completions));
}

RtlEngine::~RtlEngine() = default;

std::size_t RtlEngine::submit(std::span<const Entry> entries) {
  const std::lock_guard lock(mutex_);
  const unsigned queue = next_queue_;
  Pointers& pointers = pointers_[queue];
  const std::uint64_t room = PdStackModel::kDepth - (pointers.submitted - pointers.completed);
  const std::size_t count = std::min<std::size_t>(entries.size(), room);
  if (count == 0) return 0;
  for (const Entry& entry : entries.first(count)) {
    memory_->submissions[queue][pointers.submitted++ % PdStackModel::kDepth] = entry;
  }
  model_.write_register(register_of(PdStackModel::kSubmissionTail, queue),
                        pointer(pointers.submitted));
  under_way_ += count;
  next_queue_ = (queue + 1) % settings_.queues;
  return count;
}

std::size_t RtlEngine::reap(std::span<Entry> done) {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t cycle = 0; done_.size() < done.size() && under_way_ != 0; ++cycle) {
    if (settings_.cycles_per_reap != 0 && cycle == settings_.cycles_per_reap) break;
    if (model_.is_faulty() || cycle == kHang) {
      throw Failure("the rtl engine does not go on after cycle " + std::to_string(model_.cycles()) +
                    (model_.is_faulty() ? ": a command queue is gone" : ": it hangs"));
    }
    step();
  }
  const std::size_t count = std::min(done.size(), done_.size());
  std::copy_n(done_.begin(), count, done.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void RtlEngine::wait(std::uint64_t cycles) {
  const std::lock_guard lock(mutex_);
  while (cycles-- > 0) step();
}

void RtlEngine::step() {
  model_.step();
  while (const auto queue = model_.take_interrupt()) take_completions(*queue);
}

void RtlEngine::take_completions(unsigned queue) {
  Pointers& pointers = pointers_[queue];
  const std::uint64_t before = pointers.completed;
  for (;;) {
    Entry& place = memory_->completions[queue][pointers.completed % PdStackModel::kDepth];
    if (place.type == EntryType::kNone) break;
    done_.push_back(std::exchange(place, {}));
    ++pointers.completed;
    --under_way_;
  }
  if (pointers.completed == before) return;
  model_.write_register(register_of(PdStackModel::kCompletionHead, queue),
                        pointer(pointers.completed));
}

bool RtlEngine::is_idle() const {
  const std::lock_guard lock(mutex_);
  return under_way_ == 0 && done_.empty();
}

std::uint64_t RtlEngine::cycles() const {
  const std::lock_guard lock(mutex_);
  return model_.cycles();
}

}  // namespace ferry::pipe
