#include "host/standin/network_rules.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

using Effect = NetworkRules::Effect;

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
      // Before it has a namespace of its own, this would be the test's loopback interface.
      const bool is_apart = namespace_inode(pid, "net") != namespace_inode(::getpid(), "net");
      if (is_apart &&
          run({"ip", "-br", "link", "show", "lo"}).out.find("UNKNOWN") != std::string::npos)
        return true;
      ::usleep(20000);
    }
    return false;
  }
};

struct NetworkRulesTest : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
};

TEST_F(NetworkRulesTest, NothingPassesASilentNetwork) {
  Apart apart;
  ASSERT_TRUE(apart.is_ready());
  ASSERT_TRUE(apart.speaks());
  std::optional<NetworkRules> silence(std::in_place, apart.pid, Effect::kSilence);
  EXPECT_FALSE(apart.speaks());
  silence.reset();
  EXPECT_TRUE(apart.speaks());
  EXPECT_EQ(apart.run({"nft", "list", "tables"}).out, "");
}

TEST_F(NetworkRulesTest, RoceBearsTheMarkThatPassesCriusLock) {
  Apart apart;
  ASSERT_TRUE(apart.is_ready());
  std::optional<NetworkRules> exception(std::in_place, apart.pid, Effect::kPassLock);
  const std::string rules = apart.run({"nft", "list", "ruleset"}).out;
  EXPECT_NE(rules.find("udp dport { 4791, 61441-62462 } meta mark set 0x0000c114"),
            std::string::npos)
      << rules;
  EXPECT_TRUE(apart.speaks());
  exception.reset();
  EXPECT_EQ(apart.run({"nft", "list", "tables"}).out, "");
}

TEST_F(NetworkRulesTest, WhatAFormerFerrydHasSilencedIsHeardAgain) {
  Apart apart;
  ASSERT_TRUE(apart.is_ready());
  auto* left = new NetworkRules(apart.pid, Effect::kSilence);
  EXPECT_FALSE(apart.speaks());
  NetworkRules::end(apart.pid, Effect::kSilence);
  EXPECT_TRUE(apart.speaks());
  delete left;
}

TEST_F(NetworkRulesTest, FerrydsOwnIsLeftAlone) {
  const Outcome before = run({{"nft", "list", "tables"}, {}, {}});
  const NetworkRules silence(::getpid(), Effect::kSilence);
  const NetworkRules exception(::getpid(), Effect::kPassLock);
  EXPECT_EQ(run({{"nft", "list", "tables"}, {}, {}}).out, before.out);
}

}  // namespace
}  // namespace ferry::host
