#include "verbs/kernel/rdma_cm.h"

#include <errno.h>
#include <rdma/rdma_user_cm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "verbs/entry.h"
#include "verbs/kernel/fork.h"
#include "verbs/kernel/not_cancelled.h"
#include "verbs/kernel/rdma_cm_devices.h"
#include "verbs/kernel/relayed_cm.h"
#include "verbs/kernel/virtual_files.h"
#include "verbs/process.h"
#include "verbs/restart.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

std::atomic<rdmacm::Service*> the_service{nullptr};

// The descriptors of rdma_cm, one bit each. Every write() and close() of the program looks here
// first.
constexpr int kMaxDescriptor = 1 << 16;
std::array<std::atomic<std::uint64_t>, kMaxDescriptor / 64> ours;
constexpr std::chrono::milliseconds kGoodbye{1000};  // for the agent to send letters at the end

// The process that has these descriptors. A child after vfork() shares this memory and has
// descriptors of its own under the same numbers: what it closes stays open here.
std::atomic<pid_t> owner{0};

bool is_marked(int descriptor) {
  if (descriptor < 0 || descriptor >= kMaxDescriptor) return false;
  const auto word = ours[static_cast<unsigned>(descriptor) / 64].load(std::memory_order_relaxed);
  return word >> (descriptor % 64) & 1;
}
bool is_ours(int descriptor) {
  return is_marked(descriptor) && owner.load(std::memory_order_relaxed) == ::getpid();
}
void set_ours(int descriptor, bool on) {
  if (descriptor >= kMaxDescriptor) return;
  auto& word = ours[static_cast<unsigned>(descriptor) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (descriptor % 64);
  on ? word.fetch_or(bit) : word.fetch_and(~bit);
}

class ServiceHooks final : public agent::Companion {
 public:
  explicit ServiceHooks(rdmacm::Service& service) : service_(service) {}
  int stop(std::chrono::steady_clock::time_point /*deadline*/) override {
    service_.stop();
    return 0;
  }
  int resume() override {
    service_.resume();
    return 0;
  }

 private:
  rdmacm::Service& service_;
};

// Made when the program first opens rdma_cm; never destroyed, like Process.
rdmacm::Service& service() {
  rdmacm::Service* s = the_service.load(std::memory_order_acquire);
  if (s) return *s;
  auto* fresh = new rdmacm::Service(*new RdmaCmDevices);
  if (!the_service.compare_exchange_strong(s, fresh, std::memory_order_acq_rel)) {
    delete fresh;
    return *s;
  }
  Process& p = process();
  p.registry.set_companion(new ServiceHooks(*fresh));
  p.agent.start();
  return *fresh;
}

int run_command(int descriptor, const void* buffer, size_t size, bool event) {
  NotCancelled guard;
  return guarded([&] {
    rdmacm::Service* s = rdma_cm_if_any();
    if (!s) return ENODEV;  // a child after fork(): the descriptor is of the parent's service
    const std::span bytes(static_cast<const std::byte*>(buffer), size);
    return event ? s->take_event(descriptor, bytes) : s->command(descriptor, bytes);
  });
}

int enter_wait(int descriptor) {
  NotCancelled guard;
  return guarded([&] {
    rdmacm::Service* s = rdma_cm_if_any();
    return s ? s->enter_wait(descriptor) : ENODEV;
  });
}

void leave_wait(int descriptor) {
  NotCancelled guard;
  guarded([&] {
    if (rdmacm::Service* s = rdma_cm_if_any()) s->leave_wait(descriptor);
    return 0;
  });
}

bool is_get_event(const void* buffer, size_t size) {
  rdma_ucm_cmd_hdr header;
  if (size < sizeof header + sizeof(rdma_ucm_get_event)) return false;
  __builtin_memcpy(&header, buffer, sizeof header);
  return header.cmd == RDMA_USER_CM_CMD_GET_EVENT && header.in >= sizeof(rdma_ucm_get_event);
}

// Programs cancel threads that wait here, so nothing in this frame may need to be undone.
int wait_for_event(int descriptor, const void* buffer, size_t size) {
  for (;;) {
    if (const int error = enter_wait(descriptor)) return error;
    char byte;
    Interruption interruption;
    const ssize_t got = ::read(descriptor, &byte, 1);
    const bool restored = got < 0 && interruption.was_restore();
    const int saved_errno = errno;
    leave_wait(descriptor);
    errno = saved_errno;
    if (restored) continue;
    if (got <= 0) return got < 0 ? errno : ENODEV;
    const int error = run_command(descriptor, buffer, size, true);
    if (error != EAGAIN) return error;
  }
}

// Without a goodbye, a program that ends with open connections would look to its peers as if it were alive.
__attribute__((destructor)) void say_goodbye() {
  if (rdmacm::Service* s = rdma_cm_if_any()) {
    guarded([&] {
      s->leave();
      return 0;
    });
  }
  if (relay::Relay* relay = relay_if_any()) {
    guarded([&] {
      if (relay->leave()) process().agent.await_letters_sent(kGoodbye);
      return 0;
    });
  }
}

}  // namespace

int open_kernels_rdma_cm(int flags) {
  const int descriptor = open_relayed_cm(flags);
  if (descriptor < 0) return -1;
  owner.store(::getpid(), std::memory_order_relaxed);
  if (descriptor >= kMaxDescriptor) {
    relay_if_any()->close(descriptor);
    errno = EMFILE;
    return -1;
  }
  set_ours(descriptor, true);
  return descriptor;
}

int open_rdma_cm(int flags) {
  NotCancelled guard;
  int descriptor = -1;
  const int error = guarded([&] {
    descriptor = service().open(flags);
    return descriptor < 0 ? errno : 0;
  });
  if (error) return minus_one_or_errno(error);
  owner.store(::getpid(), std::memory_order_relaxed);
  set_ours(descriptor, true);
  return descriptor;
}

rdmacm::Service* rdma_cm_if_any() {
  return the_service.load(std::memory_order_acquire);
}

namespace {
rdmacm::Service* locked_for_fork = nullptr;  // the service's own lock guards it
// Of the thread that forks: another one may open rdma_cm for the first time meanwhile.
thread_local relay::Relay* relay_for_fork = nullptr;
}  // namespace

void rdma_cm_before_fork() {
  rdmacm::Service* s = rdma_cm_if_any();
  if (s) s->before_fork();
  locked_for_fork = s;
  relay::Relay* const relay = relay_if_any();
  if (relay) relay->before_fork();
  relay_for_fork = relay;
}

void rdma_cm_in_parent() {
  if (relay_for_fork) relay_for_fork->after_fork_in_parent();
  if (locked_for_fork) locked_for_fork->after_fork_in_parent();
}

void rdma_cm_in_child() {
  if (relay_for_fork) relay_for_fork->after_fork_in_child();
  relayed_cm_in_child();
  if (locked_for_fork) locked_for_fork->abandon_in_child();
  the_service.store(nullptr, std::memory_order_release);
  owner.store(::getpid(), std::memory_order_relaxed);
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ssize_t write(int descriptor, const void* buffer, size_t size) {
  if (!is_ours(descriptor)) return FERRY_NEXT(write)(descriptor, buffer, size);
  const bool event = is_get_event(buffer, size);
  int error = 0;
  if (ferry::relay::Relay* relay = relay_if_any()) {  // then there is no other rdma_cm
    error = run_relayed(*relay, descriptor, buffer, size, event);
  } else {
    error = event ? wait_for_event(descriptor, buffer, size)
                  : run_command(descriptor, buffer, size, false);
  }
  if (error == EBADF) {  // something else has this number now
    set_ours(descriptor, false);
    return FERRY_NEXT(write)(descriptor, buffer, size);
  }
  if (error == 0) return static_cast<ssize_t>(size);
  errno = error;
  return -1;
}

FERRY_EXPORT int close(int descriptor) {
  if (is_ours(descriptor)) {
    NotCancelled guard;
    bool is_closed = false;
    guarded([&] {
      if (ferry::relay::Relay* relay = relay_if_any(); relay && relay->has(descriptor)) {
        set_ours(descriptor, false);  // the relay closes the descriptor by this function
        is_closed = relay->close(descriptor);
        return 0;
      }
      ferry::rdmacm::Service* s = rdma_cm_if_any();
      if (!s || s->close(descriptor)) set_ours(descriptor, false);
      return 0;
    });
    if (is_closed) return 0;
  }
  return FERRY_NEXT(close)(descriptor);
}

static dev_t number_of(int descriptor) {
  ferry::relay::Relay* relay = relay_if_any();
  const dev_t kernels = relay ? relay->number_of(descriptor) : 0;
  return kernels != 0 ? kernels : rdma_cm_number();
}

// librdmacm checks that what it opened is a character device.
#define FERRY_FSTAT(function, type)                                         \
  FERRY_EXPORT int function(int descriptor, struct type* out) noexcept {    \
    const int result = FERRY_NEXT(function)(descriptor, out);               \
    if (result != 0 || !is_ours(descriptor)) return result;                 \
    out->st_mode = (out->st_mode & ~static_cast<mode_t>(S_IFMT)) | S_IFCHR; \
    out->st_rdev = number_of(descriptor);                                   \
    return 0;                                                               \
  }
FERRY_FSTAT(fstat, stat)
FERRY_FSTAT(fstat64, stat64)
