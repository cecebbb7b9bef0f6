#include "verbs/faults.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "rig.h"
#include "rnic/memory/copy.h"

namespace ferry::verbs {
namespace {

sigjmp_buf jump;
volatile int caught;
void* volatile caught_address;

void on_segv(int number, siginfo_t* info, void*) {
  caught = number;
  caught_address = info->si_addr;
  siglongjmp(jump, 1);
}
void count_signal(int number) {
  caught = number;
}

char* protected_page() {
  void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<char*>(page);
}

// How a child that does this ends: the signal, or 1000 + the exit code.
template <typename Body>
int ends_by(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

struct Faults : Rig {
  struct sigaction before {};
  void SetUp() override {
    Rig::SetUp();
    ASSERT_EQ(::sigaction(SIGSEGV, nullptr, &before), 0);
    caught = 0;
  }
  void TearDown() override {
    EXPECT_EQ(::sigaction(SIGSEGV, &before, nullptr), 0);
    Rig::TearDown();
  }
};

TEST_F(Faults, TheCopyRoutineSurvives) {
  char* page = protected_page();
  char data[64];
  EXPECT_FALSE(rnic::copy_from_application(data, page, sizeof data));
  EXPECT_FALSE(rnic::copy_to_application(page, data, sizeof data));
  EXPECT_TRUE(rnic::copy_to_application(data, "0123456789", 10));
  ::munmap(page, 4096);
}

TEST_F(Faults, TheProgramsHandlerGetsItsOwnFaults) {
  struct sigaction action {};
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGSEGV, &action, nullptr), 0);
  struct sigaction seen {};
  ASSERT_EQ(::sigaction(SIGSEGV, nullptr, &seen), 0);
  EXPECT_EQ(seen.sa_sigaction, on_segv);  // it sees what it set
  char* page = protected_page();
  if (sigsetjmp(jump, 1) == 0) {
    *static_cast<volatile char*>(page + 5) = 1;
    FAIL() << "no fault";
  }
  EXPECT_EQ(caught, SIGSEGV);
  EXPECT_EQ(caught_address, page + 5);
  // And ours still come first.
  caught = 0;
  char data[8];
  EXPECT_FALSE(rnic::copy_from_application(data, page, sizeof data));
  EXPECT_EQ(caught, 0);
  ::munmap(page, 4096);
}

TEST_F(Faults, WithoutAHandlerAFaultKillsAsEver) {
  char* page = protected_page();
  EXPECT_EQ(ends_by([&] {
              ::signal(SIGSEGV, SIG_DFL);
              *static_cast<volatile char*>(page) = 1;
            }),
            SIGSEGV);
  EXPECT_EQ(ends_by([&] {
              ::signal(SIGSEGV, SIG_IGN);
              *static_cast<volatile char*>(page) = 1;
            }),
            SIGSEGV);
  EXPECT_EQ(ends_by([&] {
              ::signal(SIGBUS, SIG_DFL);
              ::raise(SIGBUS);
            }),
            SIGBUS);
  EXPECT_EQ(ends_by([&] {
              ::signal(SIGBUS, SIG_IGN);
              ::raise(SIGBUS);
            }),
            1000);
  ::munmap(page, 4096);
}

TEST_F(Faults, AHandlerForOneSignalRunsOnce) {
  EXPECT_EQ(ends_by([] {
              struct sigaction action {};
              action.sa_handler = count_signal;
              action.sa_flags = SA_RESETHAND;
              ::sigaction(SIGSEGV, &action, nullptr);
              ::raise(SIGSEGV);
              if (caught != SIGSEGV) ::_exit(1);
              ::raise(SIGSEGV);
            }),
            SIGSEGV);
}

TEST_F(Faults, TheTwoSignalsStayUnblocked) {
  sigset_t all, now;
  sigfillset(&all);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &all, nullptr), 0);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &now), 0);
  EXPECT_FALSE(sigismember(&now, SIGSEGV));
  EXPECT_FALSE(sigismember(&now, SIGBUS));
  EXPECT_TRUE(sigismember(&now, SIGTERM));
  char* page = protected_page();
  char data[8];
  EXPECT_FALSE(rnic::copy_from_application(data, page, sizeof data));
  ::munmap(page, 4096);
  sigset_t none;
  sigemptyset(&none);
  ASSERT_EQ(::sigprocmask(SIG_SETMASK, &none, nullptr), 0);
}

TEST_F(Faults, OtherHandlersRunAndAreCounted) {
  const std::uint32_t count = handlers_run_on_this_thread();
  EXPECT_EQ(::signal(SIGUSR1, count_signal), SIG_DFL);
  ::raise(SIGUSR1);
  EXPECT_EQ(caught, SIGUSR1);
  EXPECT_EQ(handlers_run_on_this_thread(), count + 1);
  EXPECT_EQ(::signal(SIGUSR1, SIG_IGN), count_signal);
  ::raise(SIGUSR1);
  EXPECT_EQ(::signal(SIGUSR1, SIG_DFL), SIG_IGN);
  EXPECT_EQ(handlers_run_on_this_thread(), count + 1);
}

// As subprocess launchers do: the child shares the parent's memory until it execs.
TEST_F(Faults, AChildAfterVforkDoesNotChangeTheParentsHandlers) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan does not know threads that it did not start";
#endif
  ::signal(SIGUSR1, count_signal);
  // What vfork() is, with a stack of the child's own.
  alignas(16) static char stack[1 << 16];
  const pid_t child = ::clone(
      [](void*) {
        ::signal(SIGUSR1, SIG_DFL);
        ::signal(SIGSEGV, SIG_DFL);
        return 0;
      },
      stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
  ASSERT_GT(child, 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::raise(SIGUSR1);
  EXPECT_EQ(caught, SIGUSR1);
  EXPECT_EQ(::signal(SIGUSR1, SIG_DFL), count_signal);
}

TEST_F(Faults, WrongNumbersAreRefused) {
  struct sigaction action {};
  action.sa_handler = count_signal;
  EXPECT_EQ(::sigaction(SIGKILL, &action, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::sigaction(0, &action, nullptr), -1);
  EXPECT_EQ(::sigaction(1000, &action, nullptr), -1);
  EXPECT_EQ(::signal(1000, count_signal), SIG_ERR);
}

// Another thread changes what a signal does, while it comes again and again. SIGURG is ignored by
// default.
TEST_F(Faults, ASignalThatComesWhileItsHandlerIsTakenAwayFindsOneOfBoth) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan takes the reader of a sequence lock, who looks again, for a race";
#endif
  std::atomic<bool> over{false};
  std::thread changes([&] {
    for (int i = 0; i < 20'000; ++i) {
      for (const sighandler_t each : {SIG_DFL, count_signal, SIG_IGN, count_signal}) {
        ::signal(SIGURG, each);
      }
    }
    over = true;
  });
  while (!over) ::kill(::getpid(), SIGURG);
  changes.join();
  EXPECT_EQ(caught, SIGURG);
  ::signal(SIGURG, SIG_DFL);
}

TEST_F(Faults, AChildThatIsMadeWhileAnActionChangesCanChangeOne) {
  std::atomic<bool> over{false};
  std::thread changes([&] {
    while (!over) ::signal(SIGURG, count_signal);
  });
  int status = 0;
  for (int i = 0; i < 1'000 && status == 0; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGURG, SIG_IGN);
      ::_exit(0);
    }
    // One that hangs does so with all signals blocked.
    for (int ms = 0; ::waitpid(child, &status, WNOHANG) == 0; ++ms) {
      if (ms == 60'000) ::kill(child, SIGKILL);
      ::usleep(1000);
    }
  }
  over = true;
  changes.join();
  EXPECT_EQ(status, 0);
  ::signal(SIGURG, SIG_DFL);
}

}  // namespace
}  // namespace ferry::verbs
