#include "loopback.h"

// Many threads of a program on the objects of one RNIC.
namespace ferry::rnic::testing {
namespace {

constexpr int kThreads = 4;
constexpr std::uint64_t kEach = 300;  // requests of a thread
constexpr std::uint32_t kThreadsSize = 64;

// Until it is taken: a queue that is full says ENOMEM.
template <typename Post>
void insist(Post post) {
  int error = ENOMEM;
  while ((error = post()) == ENOMEM) std::this_thread::yield();
  EXPECT_EQ(error, 0);
}

// Polls from several threads until there were `count` completions; the wr_ids of all.
std::multiset<std::uint64_t> poll_together(device::Cq* cq, std::uint64_t count) {
  std::mutex mutex;
  std::multiset<std::uint64_t> seen;
  std::atomic<std::uint64_t> left{count};
  std::vector<std::thread> pollers;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      ibv_wc wcs[8];
      while (left.load() > 0 && std::chrono::steady_clock::now() < end) {
        const int got = cq->poll(8, wcs);
        if (got < 0) break;
        std::lock_guard lock(mutex);
        for (int j = 0; j < got; ++j) {
          EXPECT_EQ(wcs[j].status, IBV_WC_SUCCESS);
          seen.insert(wcs[j].wr_id);
        }
        left.fetch_sub(static_cast<std::uint64_t>(got));
      }
    });
  }
  for (std::thread& poller : pollers) poller.join();
  return seen;
}

void expect_each_once(const std::multiset<std::uint64_t>& seen) {
  EXPECT_EQ(seen.size(), kThreads * kEach);
  for (std::uint64_t id = 0; id < kThreads * kEach; ++id) EXPECT_EQ(seen.count(id), 1u) << id;
}

TEST(Threads, PostToOneQpAndPollOneCq) {
  Pair pair;
  // The CQs have room for all: a slow machine may poll nothing before the last request is done.
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false), 0, {}, kThreads * kEach));
  std::vector<std::byte> from = pattern(kThreadsSize, 1), to(kThreadsSize);
  device::Mr* mr_a = pair.a.reg(from.data(), kThreadsSize);
  device::Mr* mr_b = pair.b.reg(to.data(), kThreadsSize);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        insist(
            [&] { return post_receive(pair.qp_b, t * kEach + i, to.data(), kThreadsSize, mr_b); });
      }
    });
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        insist([&] {
          return Send(IBV_WR_SEND, t * kEach + i, from.data(), kThreadsSize, mr_a).post(pair.qp_a);
        });
      }
    });
  }
  std::multiset<std::uint64_t> sent, received;
  std::thread other([&] { received = poll_together(pair.b.cq, kThreads * kEach); });
  sent = poll_together(pair.a.cq, kThreads * kEach);
  other.join();
  for (std::thread& thread : threads) thread.join();
  expect_each_once(sent);
  expect_each_once(received);
}

TEST(Threads, ObjectsComeAndGoBesideTraffic) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false)));
  std::vector<std::byte> from = pattern(kThreadsSize, 1), to(kThreadsSize);
  device::Mr* mr_a = pair.a.reg(from.data(), kThreadsSize);
  device::Mr* mr_b = pair.b.reg(to.data(), kThreadsSize);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  const auto until_done = [&](auto body) {
    threads.emplace_back([&done, body] {
      while (!done.load()) body();
    });
  };
  until_done([&] {
    std::byte memory[128];
    device::Mr* mr = pair.a.reg(memory, sizeof memory);
    EXPECT_EQ(pair.a.context->destroy(mr), 0);
  });
  until_done([&] {
    device::Cq* cq = nullptr;
    EXPECT_EQ(pair.a.context->create_cq({16}, &cq), 0);
    EXPECT_EQ(pair.a.context->destroy(cq), 0);
  });
  until_done([&] {
    device::Qp* qp = pair.a.create_qp();
    to_init(qp);
    EXPECT_EQ(pair.a.context->destroy(qp), 0);
  });
  until_done([&] {
    std::vector<device::QpStatus> status;
    std::vector<device::Counter> counters;
    ibv_port_attr port{};
    ibv_qp_attr attributes{};
    pair.a.context->status(&status);
    pair.a.context->counters(&counters);
    EXPECT_EQ(pair.a.context->query_port(1, &port), 0);
    EXPECT_EQ(pair.qp_a->query(&attributes), 0);
  });
  for (std::uint64_t i = 0; i < kEach; ++i) {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, i, from.data(), kThreadsSize, mr_a)
                  .remote(to.data(), mr_b->rkey())
                  .post(pair.qp_a),
              0);
    EXPECT_EQ(wait_completion(pair.a.cq, std::chrono::seconds(60)).status, IBV_WC_SUCCESS);
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(from, to);
}

// Each on a slot of its own.
TEST(Threads, ManyContextsOpenAtOnce) {
  std::vector<std::unique_ptr<Pair>> pairs(kThreads);
  std::vector<std::thread> threads;
  for (auto& pair : pairs) {
    threads.emplace_back([&pair] {
      pair = std::make_unique<Pair>();
      pair->open(loopback(true, true));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint32_t> numbers;
  for (const auto& pair : pairs) {
    numbers.insert(pair->qp_a->qpn());
    numbers.insert(pair->qp_b->qpn());
  }
  EXPECT_EQ(numbers.size(), 2u * kThreads);
}

}  // namespace
}  // namespace ferry::rnic::testing
