#include "host/proc/process_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/failure.h"
#include "played_process.h"

namespace ferry::host {
namespace {

using test::eventually;

// A child, with an awkward name, that has a child; both wait to be killed.
struct Family {
  pid_t child = 0, grandchild = 0;
  Family() {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_NAME, "a) S 1 (b");
      const pid_t own = ::fork();
      if (own == 0) {
        for (;;) ::pause();
      }
      if (::write(pipe[1], &own, sizeof own) != sizeof own) ::_exit(1);
      for (;;) ::pause();
    }
    EXPECT_EQ(::read(pipe[0], &grandchild, sizeof grandchild),
              static_cast<ssize_t>(sizeof grandchild));
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ~Family() {
    ::kill(grandchild, SIGKILL);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
};

TEST(ProcessTree, ParentsComeBeforeChildren) {
  Family family;
  EXPECT_EQ(process_tree(family.child), (std::vector{family.child, family.grandchild}));
  EXPECT_EQ(process_tree(family.grandchild), std::vector{family.grandchild});
  const auto ours = process_tree(::getpid());
  ASSERT_GE(ours.size(), 3u);
  EXPECT_EQ(ours[0], ::getpid());
}

TEST(ProcessTree, WhoHasEndedIsNotAlive) {
  EXPECT_TRUE(is_alive(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(is_alive(child)) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(is_alive(child));
}

// Who ignores SIGTERM, and what it goes on to start, ends too, also when it is just starting another. A
// test that is killed itself leaves nobody for longer than two minutes.
void expect_nobody_escapes(void (*kill)(pid_t root)) {
  for (int round = 0; round < 30; ++round) {
    int alive[2];  // readable when nobody has the other end any more
    ASSERT_EQ(::pipe2(alive, O_CLOEXEC), 0);
    const pid_t root = ::fork();
    if (root == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setsid();
      ::signal(SIGTERM, SIG_IGN);
      ::signal(SIGCHLD, SIG_IGN);
      for (;;) {
        if (::fork() == 0) {
          ::alarm(120);
          for (;;) ::pause();
        }
        ::usleep(1000);
      }
    }
    ::close(alive[1]);
    while (process_tree(root).size() < 4) ::usleep(1000);
    const auto before = process_tree(root);
    kill(root);
    int status = 0;
    EXPECT_EQ(::waitpid(root, &status, 0), root);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    for (const pid_t pid : before) EXPECT_FALSE(is_alive(pid)) << pid;
    pollfd end{alive[0], POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, 30000), 1) << "one has escaped";
    ::kill(-root, SIGKILL);
    ::close(alive[0]);
  }
}

TEST(ProcessTree, IsKilledWithAllThatItStarts) {
  expect_nobody_escapes(kill_tree);
}

TEST(ProcessTree, IsKilledBySignalWithAllThatItStarts) {
  expect_nobody_escapes([](pid_t root) {
    const auto tree = process_tree(root);
    signal_tree(root, start_time(root), SIGKILL);
    for (const pid_t pid : tree) {
      while (is_alive(pid)) ::usleep(1000);  // it does not wait for their ends
    }
  });
}

TEST(ProcessTree, ASignalReachesAllOfIt) {
  Family family;
  signal_tree(family.child, start_time(family.child), SIGTERM);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(family.child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ended.si_status, SIGTERM);
  while (is_alive(family.grandchild)) ::usleep(1000);
}

TEST(ProcessTree, ASignalIsNotForALaterProcessWithTheId) {
  Family family;
  signal_tree(family.child, start_time(family.child) - 1, SIGKILL);
  EXPECT_TRUE(is_alive(family.child));
  EXPECT_TRUE(is_alive(family.grandchild));
}

TEST(ProcessTree, KnowsAncestorsAndNames) {
  Family family;
  const auto chain = ancestors(family.grandchild);
  ASSERT_GE(chain.size(), 2u);
  EXPECT_EQ(chain[0], family.child);
  EXPECT_EQ(chain[1], ::getpid());
  EXPECT_EQ(program_name(family.child), "a) S 1 (b");
  const auto named = processes_named("a) S 1 (b");
  EXPECT_EQ(std::count(named.begin(), named.end(), family.child), 1);
}

TEST(ProcessTree, NothingIsThereForNobody) {
  EXPECT_TRUE(process_tree(0).empty());
  EXPECT_TRUE(process_tree(1 << 30).empty());
  EXPECT_FALSE(program_name(1 << 30));
  EXPECT_FALSE(innermost_pid(1 << 30));
  EXPECT_EQ(resident_bytes(1 << 30), 0u);
  EXPECT_EQ(namespace_inode(1 << 30, "net"), 0u);
}

TEST(ProcessTree, MeasuresMemory) {
  const std::uint64_t before = resident_bytes(::getpid());
  std::vector<char> block(32 << 20, 1);
  EXPECT_GE(resident_bytes(::getpid()), before + (30 << 20));
  EXPECT_GT(available_memory(), 1u << 20);
}

TEST(ProcessTree, FindsThePidInsideANamespace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(1);
    const pid_t inner = ::fork();
    if (inner == 0) {
      for (;;) ::pause();
    }
    const bool right = innermost_pid(inner) == 1;
    ::kill(inner, SIGKILL);
    ::waitpid(inner, nullptr, 0);
    ::_exit(right ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(innermost_pid(::getpid()).has_value(), true);
}

TEST(ProcessTree, KnowsWhoIsHalted) {
  EXPECT_FALSE(is_halted(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::pause();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(is_halted(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_halted(child));
}

TEST(ProcessTree, OwnerIsTheOneOfAllItsIds) {
  EXPECT_EQ(owner_of(::getpid()), ::getuid());
  EXPECT_FALSE(owner_of(0x3fffffff));
  if (::geteuid() != 0) return;
  constexpr uid_t kNobody = 65534;
  const auto owner_after = [](auto change) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (change()) ::raise(SIGSTOP);
      ::_exit(1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status));
    const auto owner = owner_of(child);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return owner;
  };
  // As exec() leaves it: the kernel lets nobody else look into who has changed its ids.
  const auto dumpable = [] { return ::prctl(PR_SET_DUMPABLE, 1) == 0; };
  const auto nobody = [&](gid_t saved_group, uid_t saved_user) {
    return ::setresgid(kNobody, kNobody, saved_group) == 0 &&
           ::setresuid(kNobody, kNobody, saved_user) == 0 && dumpable();
  };
  EXPECT_EQ(owner_after([&] { return nobody(kNobody, kNobody); }), kNobody);
  EXPECT_FALSE(owner_after([&] { return nobody(kNobody, 0); })) << "set-user-ID";
  EXPECT_FALSE(owner_after([&] { return nobody(0, kNobody); })) << "set-group-ID";
  EXPECT_FALSE(owner_after([&] {
    return ::setresgid(kNobody, kNobody, kNobody) == 0 &&
           ::setresuid(kNobody, kNobody, kNobody) == 0;
  })) << "not dumpable";
  EXPECT_FALSE(owner_after([&] {
    return ::prctl(PR_SET_KEEPCAPS, 1) == 0 && nobody(kNobody, kNobody);
  })) << "capabilities";
}

}  // namespace
}  // namespace ferry::host
