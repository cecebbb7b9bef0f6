#include "verbs/restart.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// What a restore looks like from inside: the call returns EINTR, `freezes` is one more, and no
// handler of the program ran. The interruption is a signal whose handler is installed by the system
// call itself, behind the back of the counter.
void interrupt_unseen(int) {
  std::atomic_ref(control_block.freezes).fetch_add(1);
}
void interrupt_seen(int) {
  std::atomic_ref(control_block.freezes).fetch_add(1);
}

struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};
extern "C" void ferry_test_restorer();
__asm__(".globl ferry_test_restorer\nferry_test_restorer:\n\tmov $15, %eax\n\tsyscall\n");

struct Restart : Rig {
  void SetUp() override {
    Rig::SetUp();
    const KernelAction unseen{interrupt_unseen, 0x04000000, ferry_test_restorer, 0};
    ASSERT_EQ(::syscall(SYS_rt_sigaction, SIGUSR2, &unseen, nullptr, 8), 0);
    struct sigaction seen {};
    seen.sa_handler = interrupt_seen;
    ASSERT_EQ(::sigaction(SIGUSR1, &seen, nullptr), 0);
  }
  // Milliseconds that `call` takes when this thread is hit by `number` every 30 ms: once may be
  // before it on a busy machine.
  long timed(int number, const std::function<void()>& call) {
    const pthread_t self = ::pthread_self();
    std::atomic<bool> done{false};
    std::thread disturber([&] {
      while (!done) {
        timespec t{0, 30000000};
        ::syscall(SYS_nanosleep, &t, nullptr);
        if (!done) ::pthread_kill(self, number);
      }
    });
    const auto start = Clock::now();
    call();
    const auto end = Clock::now();
    done = true;
    disturber.join();
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - start).count();
  }
};

TEST_F(Restart, CallsGoOnForTheRestOfTheirTime) {
  const timespec time{0, 100000000};
  EXPECT_GE(timed(SIGUSR2, [] { EXPECT_EQ(::poll(nullptr, 0, 100), 0); }), 99);
  EXPECT_GE(timed(SIGUSR2, [&] { EXPECT_EQ(::ppoll(nullptr, 0, &time, nullptr), 0); }), 99);
  EXPECT_GE(timed(SIGUSR2, [&] { EXPECT_EQ(::nanosleep(&time, nullptr), 0); }), 99);
  EXPECT_GE(
      timed(SIGUSR2, [&] { EXPECT_EQ(::clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr), 0); }),
      99);
  EXPECT_GE(timed(SIGUSR2, [] { EXPECT_EQ(::usleep(100000), 0); }), 99);
  EXPECT_GE(timed(SIGUSR2,
                  [] {
                    timeval t{0, 100000};
                    EXPECT_EQ(::select(0, nullptr, nullptr, nullptr, &t), 0);
                  }),
            99);
  EXPECT_GE(timed(SIGUSR2,
                  [&] { EXPECT_EQ(::pselect(0, nullptr, nullptr, nullptr, &time, nullptr), 0); }),
            99);
  const int epoll = ::epoll_create1(0);
  epoll_event event;
  EXPECT_GE(timed(SIGUSR2, [&] { EXPECT_EQ(::epoll_wait(epoll, &event, 1, 100), 0); }), 99);
  EXPECT_GE(timed(SIGUSR2, [&] { EXPECT_EQ(::epoll_pwait(epoll, &event, 1, 100, nullptr), 0); }),
            99);
  ::close(epoll);
}

TEST_F(Restart, AnAbsoluteSleepEndsWhenItShould) {
  timespec until;
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 100000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  timespec woken{};
  timed(SIGUSR2, [&] {
    EXPECT_EQ(::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr), 0);
    ::clock_gettime(CLOCK_MONOTONIC, &woken);
  });
  EXPECT_GE(std::pair(woken.tv_sec, woken.tv_nsec), std::pair(until.tv_sec, until.tv_nsec));
}

// A minute is never waited out.
TEST_F(Restart, AHandlerOfTheProgramEndsThem) {
  timespec time{60, 0}, left{};
  timed(SIGUSR1, [] {
    EXPECT_EQ(::poll(nullptr, 0, 60000), -1);
    EXPECT_EQ(errno, EINTR);
  });
  timed(SIGUSR1, [&] {
    EXPECT_EQ(::nanosleep(&time, &left), -1);
    EXPECT_EQ(errno, EINTR);
    EXPECT_LT(left.tv_sec, 60);
    EXPECT_GT(std::pair(left.tv_sec, left.tv_nsec), std::pair(time_t{0}, 0L));
  });
  timed(SIGUSR1, [&] { EXPECT_EQ(::clock_nanosleep(CLOCK_REALTIME, 0, &time, nullptr), EINTR); });
}

TEST_F(Restart, WhetherTheKernelWouldStartACallAgain) {
  for (const int flags : {SA_RESTART, 0}) {
    struct sigaction seen {};
    seen.sa_handler = interrupt_seen;
    seen.sa_flags = flags;
    ASSERT_EQ(::sigaction(SIGUSR1, &seen, nullptr), 0);
    timed(SIGUSR1, [&] {
      const Interruption interruption;
      EXPECT_EQ(::poll(nullptr, 0, 60000), -1);
      EXPECT_EQ(interruption.would_restart(), flags == SA_RESTART);
    });
  }
}

TEST_F(Restart, WithoutARestoreEintrIsEintr) {
  const KernelAction plain{[](int) {}, 0x04000000, ferry_test_restorer, 0};
  ASSERT_EQ(::syscall(SYS_rt_sigaction, SIGUSR2, &plain, nullptr, 8), 0);
  timed(SIGUSR2, [] {
    EXPECT_EQ(::poll(nullptr, 0, 60000), -1);
    EXPECT_EQ(errno, EINTR);
  });
}

TEST_F(Restart, SelectsSetsSurvive) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  timed(SIGUSR2, [&] {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    std::thread writer([&] {
      std::this_thread::sleep_for(80ms);
      EXPECT_EQ(::write(ends[1], "x", 1), 1);
    });
    timeval t{60, 0};
    EXPECT_EQ(::select(ends[0] + 1, &set, nullptr, nullptr, &t), 1);
    EXPECT_TRUE(FD_ISSET(ends[0], &set));
    writer.join();
  });
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Restart, CompletionEventsAreWaitedFor) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  ibv_cq* cq = ibv_create_cq(context, 4, nullptr, channel, 0);
  ibv_req_notify_cq(cq, 0);
  timed(SIGUSR2, [&] {
    std::thread raiser([&] {
      std::this_thread::sleep_for(80ms);
      fake->sink().completion(*to_cq(cq)->device);
    });
    ibv_cq* from = nullptr;
    void* its_context;
    EXPECT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
    EXPECT_EQ(from, cq);
    ibv_ack_cq_events(cq, 1);
    raiser.join();
  });
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

}  // namespace
}  // namespace ferry::verbs
