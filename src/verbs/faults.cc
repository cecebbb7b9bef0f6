#include "verbs/faults.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

#include "rnic/memory/copy.h"
#include "verbs/entry.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

using Action = struct sigaction;

constexpr int kSignals = 65;  // 1 to 64

thread_local std::uint32_t handlers_run __attribute__((tls_model("initial-exec"))) = 0;
thread_local std::uint32_t interrupting_run __attribute__((tls_model("initial-exec"))) = 0;
// This thread is in fork() and has the table's lock.
thread_local bool forking __attribute__((tls_model("initial-exec"))) = false;

bool is_fault(int number) {
  return number == SIGSEGV || number == SIGBUS;
}

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    FERRY_NEXT(pthread_sigmask)(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { FERRY_NEXT(pthread_sigmask)(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The actions that the program has set. Writers hold the lock with all signals blocked, so a handler on the same
// thread never waits for itself; handlers read without the lock.
class Table {
 public:
  void lock() {
    if (forking) return;
    while (locked_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() {
    if (!forking) locked_.clear(std::memory_order_release);
  }

  class Lock {
   public:
    explicit Lock(Table& table) : table_(table) { table_.lock(); }
    ~Lock() { table_.unlock(); }

   private:
    AllSignalsBlocked blocked_;
    Table& table_;
  };

  // Called with the lock held.
  const Action& get(int number) const { return entries_[index(number)].action; }
  void set(int number, const Action& action) {
    Entry& e = entries_[index(number)];
    e.version.fetch_add(1, std::memory_order_acq_rel);
    e.action = action;
    e.version.fetch_add(1, std::memory_order_release);
  }

  // For handlers: takes no lock.
  Action read(int number) const {
    const Entry& e = entries_[index(number)];
    for (;;) {
      const unsigned before = e.version.load(std::memory_order_acquire);
      const Action copy = e.action;
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && e.version.load(std::memory_order_relaxed) == before) return copy;
    }
  }

  std::atomic<bool> active{false};
  // The process of the table: a child after vfork() shares this memory, but not the kernel's table.
  std::atomic<pid_t> owner{0};

 private:
  struct Entry {
    std::atomic<unsigned> version{0};
    Action action{};
  };
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }

  std::array<Entry, kSignals> entries_;
  std::atomic_flag locked_ = ATOMIC_FLAG_INIT;
};

constinit Table table;

int real_sigaction(int number, const Action* action, Action* old) {
  return FERRY_NEXT(sigaction)(number, action, old);
}

void call(const Action& action, int number, siginfo_t* info, void* context) {
  ++handlers_run;
  if ((action.sa_flags & SA_RESTART) == 0) ++interrupting_run;
  if (action.sa_flags & SA_SIGINFO) {
    action.sa_sigaction(number, info, context);
  } else {
    action.sa_handler(number);
  }
}

bool has_function(const Action& action) {
  return (action.sa_flags & SA_SIGINFO) ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// Sends the signal to this thread again, with its siginfo. When the handler returns, the kernel
// does with the signal what its own table says then.
void send_again(int number, siginfo_t* info) {
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), number, info);
}

void on_signal(int number, siginfo_t* info, void* context) {
  const Action program = table.read(number);
  if (has_function(program)) return call(program, number, info, context);
  // Another thread is taking the handler away: the kernel's table still has on_signal(), or had it a moment ago.
  if (program.sa_handler == SIG_DFL) send_again(number, info);
}

// The default action: the process ends as it would without us, with the same signal and cause.
void die_of(int number, siginfo_t* info) {
  Action default_action{};
  default_action.sa_handler = SIG_DFL;
  real_sigaction(number, &default_action, nullptr);
  // A fault happens again when we return. A signal that was sent must be sent again.
  if (info->si_code <= 0) send_again(number, info);
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (info->si_code > 0 && rnic::recover_from_fault(context, info->si_addr)) {
    errno = saved_errno;
    return;
  }
  const Action program = table.read(number);
  if (has_function(program)) {
    if (program.sa_flags & SA_RESETHAND) {
      Table::Lock lock(table);
      Action reset{};
      reset.sa_handler = SIG_DFL;
      table.set(number, reset);
    }
    call(program, number, info, context);
  } else if (program.sa_handler == SIG_DFL || info->si_code > 0) {
    die_of(number, info);  // a fault that the program ignores kills it: so does the kernel
  }
  errno = saved_errno;
}

void keep_faults_unblocked(sigset_t* mask) {
  sigdelset(mask, SIGSEGV);
  sigdelset(mask, SIGBUS);
}

// What the kernel gets for an action of the program.
Action installed_for(int number, const Action& program) {
  Action installed = program;
  keep_faults_unblocked(&installed.sa_mask);
  if (is_fault(number)) {
    installed.sa_sigaction = on_fault;
    installed.sa_flags = SA_SIGINFO | (program.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
  } else if (has_function(program)) {
    installed.sa_sigaction = on_signal;
    installed.sa_flags |= SA_SIGINFO;
  }
  return installed;
}

int change_action(int number, const Action* action, Action* old) {
  if (number < 1 || number >= kSignals) return real_sigaction(number, action, old);
  if (table.active.load(std::memory_order_relaxed) &&
      table.owner.load(std::memory_order_relaxed) != ::getpid()) {
    return real_sigaction(number, action, old);
  }
  const Action wanted = action ? *action : Action{};  // outside the lock: it may fault
  Action before{};
  {
    Table::Lock lock(table);
    if (!table.active.load(std::memory_order_relaxed)) {
      if (real_sigaction(number, action ? &wanted : nullptr, &before) != 0) return -1;
    } else {
      // A signal may come in between: our table changes first, so that the handler which the kernel
      // calls finds a function there.
      const Action program = table.get(number);
      const Action installed = installed_for(number, wanted);
      if (action) table.set(number, wanted);
      if (real_sigaction(number, action ? &installed : nullptr, &before) != 0) {
        const int error = errno;
        table.set(number, program);
        errno = error;
        return -1;
      }
      if (is_fault(number) || before.sa_sigaction == on_signal) before = program;
    }
  }
  if (old) *old = before;
  return 0;
}

sighandler_t change_handler(int number, sighandler_t handler, int flags) {
  Action action{}, old{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (!(flags & SA_NODEFER)) sigaddset(&action.sa_mask, number);
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  return change_action(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

// Calls `next` with SIGSEGV and SIGBUS taken out of `set` where that would block them.
template <typename Next>
int change_mask(Next next, int how, const sigset_t* set, sigset_t* old) {
  if (!set || how == SIG_UNBLOCK || !table.active.load(std::memory_order_relaxed))
    return next(how, set, old);
  sigset_t kept = *set;
  keep_faults_unblocked(&kept);
  return next(how, &kept, old);
}

}  // namespace

void install_fault_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    {
      Table::Lock lock(table);
      for (int number = 1; number < kSignals; ++number) {
        Action program{};
        if (real_sigaction(number, nullptr, &program) != 0) continue;  // libc's own signals
        table.set(number, program);
        if (!is_fault(number) && !has_function(program)) continue;
        const Action installed = installed_for(number, program);
        real_sigaction(number, &installed, nullptr);
      }
      table.owner.store(::getpid(), std::memory_order_relaxed);
      table.active.store(true, std::memory_order_relaxed);
    }
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    FERRY_NEXT(pthread_sigmask)(SIG_UNBLOCK, &faults, nullptr);
    rnic::set_fault_handler_installed(true);
  });
}

// Until the fork a signal handler or another fork handler of this thread may change an action: it
// finds that its own thread has the lock, and goes on.
void fault_handlers_before_fork() {
  const AllSignalsBlocked blocked;
  table.lock();
  forking = true;
}

void fault_handlers_after_fork() {
  const AllSignalsBlocked blocked;
  forking = false;
  table.unlock();
}

void fault_handlers_in_child() {
  table.owner.store(::getpid(), std::memory_order_relaxed);
}

std::uint32_t handlers_run_on_this_thread() {
  return handlers_run;
}

std::uint32_t interrupting_handlers_run_on_this_thread() {
  return interrupting_run;
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT int sigaction(int number, const struct sigaction* action,
                           struct sigaction* old) noexcept {
  return change_action(number, action, old);
}

FERRY_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  return change_handler(number, handler, SA_RESTART);
}

FERRY_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) noexcept {
  return change_handler(number, handler, SA_RESTART);
}

FERRY_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  return change_handler(number, handler, SA_RESETHAND | SA_NODEFER);
}

FERRY_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  return change_handler(number, handler, SA_RESETHAND | SA_NODEFER);
}

FERRY_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return change_mask(FERRY_NEXT(sigprocmask), how, set, old);
}

FERRY_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return change_mask(FERRY_NEXT(pthread_sigmask), how, set, old);
}
