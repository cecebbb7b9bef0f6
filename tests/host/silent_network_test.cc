#include "host/standin/silent_network.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

// A process in a network namespace of its own, with a loopback interface.
struct Apart {
  pid_t pid = ::fork();

  Apart() {
    if (pid != 0) return;
    if (::unshare(CLONE_NEWNET) != 0 || ::system("ip link set lo up") != 0) ::_exit(1);
    for (;;) ::pause();
  }
  ~Apart() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Outcome run(std::vector<std::string> argv) const {
    argv.insert(argv.begin(), {"nsenter", "--net=/proc/" + std::to_string(pid) + "/ns/net"});
    return host::run({std::move(argv), {}, {}});
  }
  bool speaks() const { return run({"ping", "-c", "1", "-W", "1", "127.0.0.1"}).ok(); }
  bool is_ready() const {
    for (int i = 0; i < 500; ++i) {
      if (run({"ip", "-br", "link", "show", "lo"}).out.find("UNKNOWN") != std::string::npos)
        return true;
      ::usleep(20000);
    }
    return false;
  }
};

struct SilentNetworkTest : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
};

TEST_F(SilentNetworkTest, NothingPassesAsLongAsItLives) {
  Apart apart;
  ASSERT_TRUE(apart.is_ready());
  ASSERT_TRUE(apart.speaks());
  std::optional<SilentNetwork> silence(apart.pid);
  EXPECT_FALSE(apart.speaks());
  silence.reset();
  EXPECT_TRUE(apart.speaks());
  EXPECT_EQ(apart.run({"nft", "list", "tables"}).out, "");
}

TEST_F(SilentNetworkTest, WhatAFormerFerrydHasSilencedIsHeardAgain) {
  Apart apart;
  ASSERT_TRUE(apart.is_ready());
  auto* left = new SilentNetwork(apart.pid);
  EXPECT_FALSE(apart.speaks());
  SilentNetwork::end(apart.pid);
  EXPECT_TRUE(apart.speaks());
  delete left;
}

TEST_F(SilentNetworkTest, FerrydsOwnIsLeftAlone) {
  const Outcome before = run({{"nft", "list", "tables"}, {}, {}});
  const SilentNetwork silence(::getpid());
  EXPECT_EQ(run({{"nft", "list", "tables"}, {}, {}}).out, before.out);
}

}  // namespace
}  // namespace ferry::host
