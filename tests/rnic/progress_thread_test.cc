#include <dirent.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "loopback.h"
#include "rnic/progress/progress_thread.h"

// What the progress thread does for programs that do not poll, and what it leaves to those that do.
namespace ferry::rnic::testing {
namespace {

struct ProgressThreadTest : ::testing::Test {
  Pair pair;
  std::vector<std::byte> source = pattern(4096, 1);
  std::vector<std::byte> target = std::vector<std::byte>(4096);
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false)));
    mr_a = pair.a.reg(source.data(), source.size());
    mr_b = pair.b.reg(target.data(), target.size());
  }
  int write(unsigned flags = IBV_SEND_SIGNALED) {
    return Send(IBV_WR_RDMA_WRITE, 1, source.data(), 4096, mr_a, flags)
        .remote(target.data(), mr_b->rkey())
        .post(pair.qp_a);
  }
  // The progress threads of this process.
  static std::vector<std::string> threads() {
    std::vector<std::string> found;
    DIR* tasks = opendir("/proc/self/task");
    while (const dirent* entry = readdir(tasks)) {
      std::string name;
      std::getline(
          std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm") >> std::ws,
          name);
      if (name == "ferry-rnic") found.emplace_back(entry->d_name);
    }
    closedir(tasks);
    return found;
  }
  // How often they went to sleep until now.
  static std::uint64_t sleeps() {
    std::uint64_t total = 0;
    for (const std::string& thread : threads()) {
      std::ifstream status("/proc/self/task/" + thread + "/status");
      std::string line;
      while (std::getline(status, line)) {
        if (line.rfind("voluntary_ctxt_switches:", 0) == 0) total += std::stoull(line.substr(24));
      }
    }
    return total;
  }
  // How many threads of the machine run or wait for a CPU at this moment.
  static double runnable() {
    std::ifstream status("/proc/stat");
    std::string word;
    double count = 0;
    while (status >> word) {
      if (word == "procs_running") status >> count;
    }
    return count;
  }
  // Both sides poll; the threads should not be woken for each packet.
  void poll_beside_the_threads() {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "under this sanitizer a poll takes as long as a sleep";
#endif
    std::atomic<bool> stop{false};
    std::thread other([&] {
      ibv_wc wc{};
      while (!stop) pair.b.cq->poll(1, &wc);
    });
    const auto round_trip = [&] {
      ASSERT_EQ(write(), 0);
      ibv_wc wc{};
      while (pair.a.cq->poll(1, &wc) == 0) continue;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    };
    // Each round is two packets or more, of which either wakes a thread that listens. On a busy
    // machine a program that polls loses its CPU now and then, and the threads listen for a while;
    // in between they sleep. Both sides need a CPU of their own all the time: a machine on which
    // more wants to run than this test and one beside it has tells nothing.
    constexpr unsigned kWindow = 1000;
    constexpr double kBusy =
        5.5;  // the two that poll, the two threads that should not, another test
    std::uint64_t fewest = ~0ull;
    double running = 0;
    unsigned windows = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (fewest > kWindow / 4 && std::chrono::steady_clock::now() < end) {
      const std::uint64_t before = sleeps();
      for (unsigned i = 0; i < kWindow; ++i) round_trip();
      fewest = std::min(fewest, sleeps() - before);
      running += runnable();
      ++windows;
    }
    stop = true;
    other.join();
    if (fewest > kWindow / 4 && running / windows > kBusy) {
      GTEST_SKIP() << running / windows << " threads want to run on this machine";
    }
    EXPECT_LE(fewest, kWindow / 4);  // a thread that always listens: 2000
  }
};

// A NIC does not wait for a program that spins to use up its time slice.
TEST_F(ProgressThreadTest, RunsBeforeTheProgramWhereItMay) {
  const int own = getpriority(PRIO_PROCESS, 0);
  const bool may = setpriority(PRIO_PROCESS, 0, own - 10) == 0;
  if (may) setpriority(PRIO_PROCESS, 0, own);
  // It is the thread itself that does so, after it was named.
  ASSERT_TRUE(eventually([] { return threads().size() == 2; }));
  for (const std::string& thread : threads()) {
    const int expected = may ? std::max(own - 10, -20) : own;
    const auto id = static_cast<id_t>(std::stoul(thread));
    for (int tries = 0; getpriority(PRIO_PROCESS, id) != expected && tries < 10'000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(getpriority(PRIO_PROCESS, id), expected);
  }
}

// The target calls no verb at all, and spins on its memory.
TEST_F(ProgressThreadTest, OneSidedOperationsNeedNoPolling) {
  ASSERT_EQ(write(0), 0);
  EXPECT_TRUE(eventually([&] {
    return std::atomic_ref(reinterpret_cast<unsigned char&>(target[4095]))
               .load(std::memory_order_acquire) == static_cast<unsigned char>(source[4095]);
  }));
}

// Neither side polls: both are woken by events.
TEST_F(ProgressThreadTest, ArmedCqsAreServed) {
  for (int round = 1; round <= 50; ++round) {
    ASSERT_EQ(pair.a.cq->arm(false), 0);
    ASSERT_EQ(pair.b.cq->arm(false), 0);
    ASSERT_EQ(post_receive(pair.qp_b, 1, target.data(), 4096, mr_b), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, 1, source.data(), 4096, mr_a).post(pair.qp_a), 0);
    ASSERT_TRUE(eventually(
        [&] { return pair.a.sink.completions() == round && pair.b.sink.completions() == round; }));
    ibv_wc wc[2];
    ASSERT_EQ(pair.a.cq->poll(2, wc), 1);
    ASSERT_EQ(pair.b.cq->poll(2, wc), 1);
  }
}

TEST_F(ProgressThreadTest, SleepsWhenNothingHappens) {
  // HELLO and the first looks come before; how long they take is the machine's affair.
  std::uint64_t fewest = ~0ull;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (fewest > 10 && std::chrono::steady_clock::now() < end) {
    const std::uint64_t before = sleeps();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fewest = std::min(fewest, sleeps() - before);
  }
  EXPECT_LE(fewest, 10u);
}

TEST_F(ProgressThreadTest, IsNotWokenForEachPacketWhileTheProgramPolls) {
  poll_beside_the_threads();
}

// UCX has armed CQs for its datagrams and polls all the same.
TEST_F(ProgressThreadTest, IsNotWokenForEachPacketThoughACqIsArmed) {
  ASSERT_EQ(pair.b.cq->arm(false), 0);
  poll_beside_the_threads();
}

// A program that polls takes what an armed CQ waits for; when it ceases, the thread does.
TEST_F(ProgressThreadTest, AnArmedCqIsServedWhenPollingCeases) {
  ASSERT_EQ(pair.b.cq->arm(false), 0);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(write(), 0);
    ibv_wc wc{}, other{};
    while (pair.a.cq->poll(1, &wc) == 0) ASSERT_EQ(pair.b.cq->poll(1, &other), 0);
  }
  ASSERT_EQ(pair.b.sink.completions(), 0);
  ASSERT_EQ(post_receive(pair.qp_b, 1, target.data(), 4096, mr_b), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 1, source.data(), 4096, mr_a).post(pair.qp_a), 0);
  EXPECT_TRUE(eventually([&] { return pair.b.sink.completions() == 1; }, std::chrono::seconds(60)));
}

// It takes over again when the program ceases to poll.
TEST_F(ProgressThreadTest, NoticesThatPollingCeased) {
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(write(), 0);
    ibv_wc wc{}, other{};
    while (pair.a.cq->poll(1, &wc) == 0) pair.b.cq->poll(1, &other);
  }
  std::fill(target.begin(), target.end(), std::byte{0});
  ASSERT_EQ(write(0), 0);
  EXPECT_TRUE(eventually(
      [&] {
        return std::atomic_ref(reinterpret_cast<unsigned char&>(target[4095]))
                   .load(std::memory_order_acquire) == static_cast<unsigned char>(source[4095]);
      },
      std::chrono::seconds(60)));
}

// A request that is lost is sent again although the program sleeps.
TEST(ProgressThreadTimers, RunWithoutPolling) {
  Pair pair;
  Settings settings;
  settings.loss.sending = 0.3;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false), 0, settings));
  std::vector<std::byte> source = pattern(100, 1), target(100);
  device::Mr* mr_a = pair.a.reg(source.data(), 100);
  device::Mr* mr_b = pair.b.reg(target.data(), 100);
  ASSERT_EQ(pair.a.cq->arm(false), 0);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, source.data(), 100, mr_a, i == 9 ? IBV_SEND_SIGNALED : 0)
                  .remote(target.data(), mr_b->rkey())
                  .post(pair.qp_a),
              0);
  }
  EXPECT_TRUE(eventually([&] { return pair.a.sink.completions() == 1; }, std::chrono::seconds(60)));
}

// The program posts, and kicks the thread with it, while the RNIC is stopped for a move.
TEST(ProgressThreadDetach, NobodyWritesToWhoeverGetsTheNumber) {
  Engine engine(system_environment(), Settings{}, {}, false);
  ProgressThread thread(engine, "lo", [](bool) {});
  ASSERT_EQ(thread.start(), 0);
  std::atomic<bool> stop{false};
  std::thread program([&] {
    while (!stop) engine.thread_waker().kick();
  });
  for (int i = 0; i < 500; ++i) {
    thread.detach();
    const int next = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    std::uint64_t count = 0;
    EXPECT_EQ(read(next, &count, sizeof count), -1) << "in round " << i;
    close(next);
    ASSERT_EQ(thread.attach(), 0);
  }
  stop = true;
  program.join();
}

}  // namespace
}  // namespace ferry::rnic::testing
