#include "../rnic/workload.h"
#include "rig.h"

// Two ends of an RC connection with random requests, in a context that leaves the device and enters
// it again at random points: everything is executed exactly once, in order. Most ends give each other
// memory windows, bind and invalidate them.
namespace ferry::virt::testing {
namespace {

struct Play : Program {
  explicit Play(std::uint64_t seed) : random(seed), a("a", seed, &errors), b("b", ~seed, &errors) {
    open();
    // Both ends receive from one SRQ, or each from a queue of its own.
    if (seed % 2 == 0) {
      receives.srq = create_srq(r::SharedReceives::kSlots);
      receives.mr = reg(receives.memory(), receives.memory_size());
    }
    for (r::Endpoint* end : {&a, &b}) {
      if (receives.srq != nullptr) end->shared = &receives;
      end->qp = create_qp(r::Endpoint::capabilities(), IBV_QPT_RC, receives.srq);
      end->mr = reg(end->memory(), end->memory_size(), kRemote | IBV_ACCESS_MW_BIND);
      if (seed % 3 != 0) {
        EXPECT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &end->window), 0);
      }
    }
    a.peer = &b;
    b.peer = &a;
    connect(a.qp, b.qp);
  }

  void step(r::Endpoint& end, bool last) {
    if (random.chance(0.5)) end.post_request(last);
    if (random.chance(0.6)) end.post_receive();
    poll();
  }
  void poll() {
    ibv_wc completions[4];
    const int count = cq->poll(4, completions);
    for (int i = 0; i < count; ++i)
      (completions[i].qp_num == a.qp->qpn() ? a : b).completed(completions[i]);
  }
  // A stop, with what the program does meanwhile.
  void stop() {
    const int error = quiesce(std::chrono::milliseconds(random.between(1, 20)));
    if (error == ETIMEDOUT) return;
    ASSERT_EQ(error, 0);
    ++stops;
    for (std::uint64_t i = random.between(0, 6); i > 0; --i)
      step(random.chance(0.5) ? a : b, false);
    if (random.chance(0.8)) {
      device::Parcel parcel;
      ASSERT_EQ(context->park(&parcel), 0);
      for (std::uint64_t i = random.between(0, 6); i > 0; --i)
        step(random.chance(0.5) ? a : b, false);
      ASSERT_EQ(context->unpark(parcel), 0);
    }
    context->resume(random.chance(0.5));
  }

  void play() {
    for (int i = 0; i < 600; ++i) {
      step(random.chance(0.5) ? a : b, false);
      if (random.chance(0.02)) stop();
      if (::testing::Test::HasFatalFailure()) return;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const std::size_t posted = a.requests_posted() + b.requests_posted();
    bool more_a = true, more_b = true;
    while (!(a.done() && b.done()) || more_a || more_b) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << a.describe() << b.describe();
      ASSERT_TRUE(errors.empty()) << errors[0];
      const std::size_t of_a = a.requests_posted(), of_b = b.requests_posted();
      if (more_a) a.post_request(true);
      if (more_b) b.post_request(true);
      more_a &= a.requests_posted() == of_a;
      more_b &= b.requests_posted() == of_b;
      a.post_receive();
      b.post_receive();
      poll();
    }
    EXPECT_GT(posted, 100u);
    a.check();
    b.check();
    EXPECT_TRUE(errors.empty()) << errors[0];
    EXPECT_GT(stops, 0u);
  }

  port::SplitMix64 random;
  std::vector<std::string> errors;
  r::SharedReceives receives;
  r::Endpoint a, b;
  unsigned stops = 0;
};

TEST(RandomMoves, EverythingIsExecutedOnce) {
  const char* wanted = std::getenv("FERRY_SEED");
  const std::uint64_t first = wanted != nullptr ? std::strtoull(wanted, nullptr, 0) : 1;
  const std::uint64_t last = wanted != nullptr ? first : 20;
  std::uint64_t window_writes = 0, window_endings = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("FERRY_SEED=" + std::to_string(seed));
    Play run(seed);
    run.play();
    if (::testing::Test::HasFailure()) return;
    window_writes += run.a.window_writes() + run.b.window_writes();
    window_endings += run.a.window_endings() + run.b.window_endings();
  }
  if (wanted == nullptr) {
    EXPECT_GT(window_writes, 0u);
    EXPECT_GT(window_endings, 0u);
  }
}

}  // namespace
}  // namespace ferry::virt::testing
