#include "late_pages/guard.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "played_memory.h"

namespace ferry::late_pages {
namespace {

// A program that waits for a page, in a process of its own.
struct PlayedProgram {
  struct Shared {
    std::atomic<int> userfaultfd{-1};
    std::atomic<bool> is_taken{false}, has_read{false};
  };

  PlayedProgram()
      : shared(static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    new (shared) Shared();
    pid = ::fork();
    if (pid == 0) {
      PlayedMemory memory(4);
      shared->userfaultfd = memory.userfaultfd.get();
      while (!shared->is_taken) std::this_thread::yield();
      memory.userfaultfd.reset();
      [[maybe_unused]] const unsigned char byte =
          *const_cast<volatile unsigned char*>(memory.memory);
      shared->has_read = true;
      for (;;) ::pause();
    }
    while (shared->userfaultfd < 0 && ::waitpid(pid, nullptr, WNOHANG) == 0)
      std::this_thread::yield();
    pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    userfaultfd = UniqueFd(
        static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd.get(), shared->userfaultfd.load(), 0)));
    shared->is_taken = true;
  }
  ~PlayedProgram() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::munmap(shared, sizeof *shared);
  }
  bool runs() const {
    pollfd end{pidfd.get(), POLLIN, 0};
    return ::poll(&end, 1, 0) == 0;
  }

  Shared* shared;
  pid_t pid = -1;
  UniqueFd pidfd, userfaultfd;
};

struct GuardTest : testing::Test {
  void SetUp() override {
    if (!make_userfaultfd()) GTEST_SKIP() << "no userfaultfd with events here";
    program.emplace();
    ASSERT_TRUE(program->userfaultfd);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    of_guard.reset(ends[0]);
    of_filler.reset(ends[1]);
  }
  Guard guard() {
    std::vector<UniqueFd> userfaultfds;
    userfaultfds.push_back(std::move(program->userfaultfd));
    std::vector<Guarded> guarded;
    guarded.push_back({program->pid, UniqueFd(::fcntl(program->pidfd.get(), F_DUPFD_CLOEXEC, 0))});
    return {std::move(of_guard), std::move(userfaultfds), std::move(guarded)};
  }

  std::optional<PlayedProgram> program;
  UniqueFd of_guard, of_filler;
};

TEST_F(GuardTest, LetsGoOfAProgramThatHasAllOfItsPages) {
  send_done(of_filler.get());
  of_filler.reset();
  EXPECT_TRUE(guard().watch());
  EXPECT_TRUE(program->runs());
}

// Memory that is tracked, as for the next move, must have no other userfaultfd.
TEST_F(GuardTest, HasClosedItsUserfaultfdsWhenTheFillerIsToldOfItsEnd) {
  std::thread watching([held = std::unique_ptr<Guard>(new Guard(guard()))]() mutable {
    EXPECT_TRUE(held->watch());
    held.reset();
  });
  send_done(of_filler.get());
  wait_for_guard(of_filler.get());
  // Without any userfaultfd the page is empty.
  while (!program->shared->has_read && program->runs()) std::this_thread::yield();
  EXPECT_TRUE(program->runs());
  watching.join();
}

TEST_F(GuardTest, KillsAProgramWhosePagesAreLost) {
  of_filler.reset();
  EXPECT_FALSE(guard().watch());
  EXPECT_FALSE(program->runs());
  EXPECT_FALSE(program->shared->has_read);  // no page was empty for it
}

TEST_F(GuardTest, HoldsWhatChildrenWaitFor) {
  PlayedMemory child(4);  // of this process, which the guard does not know
  send_descriptor(of_filler.get(), child.userfaultfd.get());
  std::unique_ptr<Guard> held(new Guard(guard()));
  std::thread watching([&] { EXPECT_TRUE(held->watch()); });
  // The filler has closed its own, and the page is still not an empty one.
  child.userfaultfd.reset();
  std::atomic<bool> has_read{false};
  std::thread reading([&] {
    [[maybe_unused]] const unsigned char byte = *const_cast<volatile unsigned char*>(child.memory);
    has_read = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_read);
  send_done(of_filler.get());
  of_filler.reset();
  watching.join();
  held.reset();
  reading.join();
}

}  // namespace
}  // namespace ferry::late_pages
