#include "agent/correspondence.h"

#include <cerrno>
#include <new>
#include <utility>

namespace ferry::agent {
namespace {

constexpr int kStepMs = 1;      // between steps of contexts that are under way
constexpr int kGlanceMs = 100;  // between looks whether a suspension has lasted for too long
// Until a letter without an answer is written again: longer than ferryd tries to deliver it.
constexpr int kRepeatMs = 70000;

}  // namespace

bool Correspondence::suspend(const Suspend& request) {
  if (suspended_for_ != request.move_id) {
    release();
    suspended_for_ = request.move_id;
    released_at_ = Clock::now() + std::chrono::milliseconds(request.limit_ms);
    registry_.for_each([](Registry::Entry& entry) { entry.context->suspend_peers(); });
  }
  bool all = true;
  registry_.for_each([&](Registry::Entry& entry) { all &= entry.context->peers_are_suspended(); });
  return all;
}

void Correspondence::release() {
  if (suspended_for_ == 0) return;
  suspended_for_ = 0;
  registry_.for_each([](Registry::Entry& entry) { entry.context->release_peers(); });
}

Delivered Correspondence::deliver(const Letters& letters) {
  Delivered delivered;
  for (const device::Letter& letter : letters.letters) {
    int error = ENOENT;
    registry_.for_each([&](Registry::Entry& entry) {
      if (error != ENOENT) return;
      try {
        error = entry.context->deliver(letter);
      } catch (const std::bad_alloc&) {
        error = ENOMEM;
      }
    });
    delivered.errors.push_back(error);
  }
  return delivered;
}

void Correspondence::begin_anew() {
  registry_.for_each([](Registry::Entry& entry) { entry.context->repeat_letters(); });
}

bool Correspondence::tend(Letters* out) {
  if (suspended_for_ != 0 && Clock::now() >= released_at_) release();
  const bool was_waiting = std::exchange(is_waiting_, false);
  is_under_way_ = false;
  if (Companion* const companion = registry_.companion()) companion->tend();
  const auto now = Clock::now();
  if (!was_waiting) repeated_at_ = now;
  const bool repeats = now - repeated_at_ >= std::chrono::milliseconds(kRepeatMs);
  if (repeats) repeated_at_ = now;
  registry_.for_each([&](Registry::Entry& entry) {
    is_under_way_ |= entry.context->progress();
    if (repeats) entry.context->repeat_letters();
    is_waiting_ |= entry.context->awaits_letters();
    entry.context->take_letters(&out->letters);
  });
  return !out->letters.empty();
}

int Correspondence::hurry() const {
  if (is_under_way_) return kStepMs;
  if (suspended_for_ != 0) return kGlanceMs;
  return is_waiting_ ? kRepeatMs : -1;
}

}  // namespace ferry::agent
