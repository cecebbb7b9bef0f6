#pragma once

#include <sys/ioctl.h>
#include <sys/timerfd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pipe/protocol/entry.h"

// The memory that a program shares with the driver: a submission and a completion queue for each
// processor. The driver believes nothing that it reads here: it has the positions that are its own in
// memory of its own, copies an entry before it looks at it, and checks what the entry says.
//
// An entry is there when its first byte, its type, is not 0; who takes it writes 0. So nobody needs
// the other side's tail; the positions below only say how much room there is.
namespace ferry::pipe {

inline constexpr std::uint32_t kQueueDepth = 1024;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct Queue {
  alignas(
      64) std::atomic<std::uint64_t> submitted;  // slots that the program's threads have claimed
  alignas(64) std::atomic<std::uint64_t> taken;  // of these, what the driver has taken
  std::atomic<std::uint64_t> taking;  // `taken`, or one more: the driver is about to have taken it
  alignas(64) std::atomic<std::uint64_t> reaped;  // completions that the program has taken
  alignas(64) Entry submissions[kQueueDepth];
  alignas(64) Entry completions[kQueueDepth];
};

struct QueueMemory {
  // The driver sleeps: whoever writes an entry writes to the doorbell as well.
  alignas(64) std::atomic<std::uint32_t> doorbell_wanted;
  // The program sleeps, or has a descriptor that shall become readable.
  alignas(64) std::atomic<std::uint32_t> notice_wanted;
  // Completions wait for room: the program writes to the doorbell when it has taken some.
  alignas(64) std::atomic<std::uint32_t> completions_wait;
  alignas(64) Queue queues[1];  // as many as Hello said

  static std::size_t size(std::uint32_t count) {
    return sizeof(QueueMemory) + (count - 1) * sizeof(Queue);
  }
};

namespace slots {

inline EntryType type_of(Entry& slot) {
  auto& byte = reinterpret_cast<std::uint8_t&>(slot.type);
  return static_cast<EntryType>(std::atomic_ref(byte).load(std::memory_order_acquire));
}

inline void publish(Entry& slot, const Entry& entry) {
  constexpr std::size_t kHead = sizeof(entry.type);
  std::memcpy(reinterpret_cast<std::byte*>(&slot) + kHead,
              reinterpret_cast<const std::byte*>(&entry) + kHead, sizeof entry - kHead);
  auto& byte = reinterpret_cast<std::uint8_t&>(slot.type);
  std::atomic_ref(byte).store(static_cast<std::uint8_t>(entry.type), std::memory_order_release);
}

// False: the slot is empty.
inline bool take(Entry& slot, Entry* entry) {
  const EntryType type = type_of(slot);
  if (type == EntryType::kNone) return false;
  std::memcpy(static_cast<void*>(entry), &slot, sizeof *entry);
  entry->type = type;
  auto& byte = reinterpret_cast<std::uint8_t&>(slot.type);
  std::atomic_ref(byte).store(0, std::memory_order_release);
  return true;
}

}  // namespace slots

// The program's end of a submission queue. Any thread may submit. False: the queue is full.
inline bool submit(Queue& queue, const Entry& entry, std::uint64_t* position) {
  *position = queue.submitted.load(std::memory_order_relaxed);
  do {
    if (*position - queue.taken.load(std::memory_order_acquire) >= kQueueDepth) return false;
  } while (
      !queue.submitted.compare_exchange_weak(*position, *position + 1, std::memory_order_relaxed));
  slots::publish(queue.submissions[*position % kQueueDepth], entry);
  return true;
}

// False: another thread is still writing an entry before `position`, where the driver stops for now.
inline bool is_reachable(Queue& queue, std::uint64_t position) {
  for (std::uint64_t at = queue.taken.load(std::memory_order_acquire); at < position; ++at) {
    if (slots::type_of(queue.submissions[at % kQueueDepth]) == EntryType::kNone &&
        queue.taken.load(std::memory_order_acquire) <= at) {
      return false;
    }
  }
  return true;
}

// The driver's end; one thread at a time.
class SubmissionReader {
 public:
  bool empty(Queue& queue) const {
    return slots::type_of(queue.submissions[next_ % kQueueDepth]) == EntryType::kNone;
  }
  bool take(Queue& queue, Entry* entry) {
    if (empty(queue)) return false;
    queue.taking.store(next_ + 1, std::memory_order_relaxed);
    slots::take(queue.submissions[next_ % kQueueDepth], entry);
    queue.taken.store(++next_, std::memory_order_release);
    return true;
  }
  // Goes on where another driver was killed. What it has taken and not dealt with, the program says again.
  void resume(Queue& queue) {
    next_ = queue.taken.load(std::memory_order_acquire);
    if (queue.taking.load(std::memory_order_relaxed) != next_ + 1) return;
    Entry entry;
    slots::take(queue.submissions[next_ % kQueueDepth], &entry);
    queue.taken.store(++next_, std::memory_order_release);
  }

 private:
  std::uint64_t next_ = 0;
};

// The driver's end of a completion queue; one thread at a time.
class CompletionWriter {
 public:
  // False: the queue is full.
  bool write(Queue& queue, const Entry& entry) {
    if (next_ - queue.reaped.load(std::memory_order_acquire) >= kQueueDepth) return false;
    slots::publish(queue.completions[next_++ % kQueueDepth], entry);
    return true;
  }
  // Goes on behind another driver that was killed, when the program has reaped all.
  void resume(Queue& queue) { next_ = queue.reaped.load(std::memory_order_acquire); }

 private:
  std::uint64_t next_ = 0;
};

// The program's end; one thread at a time.
class CompletionReader {
 public:
  bool empty(Queue& queue) const {
    return slots::type_of(queue.completions[next_ % kQueueDepth]) == EntryType::kNone;
  }
  bool take(Queue& queue, Entry* entry) {
    if (!slots::take(queue.completions[next_ % kQueueDepth], entry)) return false;
    queue.reaped.store(++next_, std::memory_order_release);
    return true;
  }

 private:
  std::uint64_t next_ = 0;
};

// A notice is a timer that expires at once. Setting one never waits, whatever another process that has the
// descriptor does with it; a write to an eventfd does, where that process has cleared O_NONBLOCK.
inline int new_notice() {
  return ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
}
inline void give_notice(int notice) {
  // An expiry without the way through a clock. Kernels without checkpoint and restore do not have it.
  constexpr unsigned long kSetTicks = _IOW('T', 0, std::uint64_t);  // TFD_IOC_SET_TICKS
  const std::uint64_t once = 1;
  if (::ioctl(notice, kSetTicks, &once) == 0) return;
  itimerspec at_once{};
  at_once.it_value.tv_nsec = 1;
  ::timerfd_settime(notice, TFD_TIMER_ABSTIME, &at_once, nullptr);
}

// Who is about to sleep says so first, and looks once more before it does; who has written something
// asks by this. Both change the same word, so one of the two sees what the other has done.
inline void want(std::atomic<std::uint32_t>& word) {
  word.exchange(1, std::memory_order_acq_rel);
}
inline bool is_wanted(std::atomic<std::uint32_t>& word) {
  return word.fetch_and(0, std::memory_order_acq_rel) != 0;
}

}  // namespace ferry::pipe
