#include <sys/mman.h>

#include <thread>

#include "sim_pair.h"

// Atomic operations on application memory, and who may ask for them.
namespace ferry::rnic::testing {
namespace {

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct AtomicsTest : ::testing::Test, SimPair {
  alignas(8) std::uint64_t results[16] = {};
  alignas(8) std::uint64_t words[16] = {};
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    mr_a = a.reg(results, sizeof results);
    mr_b = b.reg(words, sizeof words, kAll);
    ASSERT_NO_FATAL_FAILURE(connect_for(kAll & ~IBV_ACCESS_LOCAL_WRITE));
  }
  void connect_for(unsigned access) {
    ASSERT_NO_FATAL_FAILURE(connect());
    ibv_qp_attr rights{};
    rights.qp_access_flags = access;
    ASSERT_EQ(qp_b->modify(rights, IBV_QP_ACCESS_FLAGS), 0);
  }
  ibv_wc post(Send request) {
    request.wr.sg_list = &request.sge;
    EXPECT_EQ(request.post(qp_a), 0);
    run();
    const auto completions = drain(a.cq);
    EXPECT_EQ(completions.size(), 1u);
    return completions.empty() ? ibv_wc{} : completions[0];
  }
  Send add(const void* to, std::uint32_t rkey, std::uint64_t addend) {
    return Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, results, 8, mr_a).atomic(to, rkey, addend);
  }
};

TEST_F(AtomicsTest, FetchAndAdd) {
  words[3] = 100;
  const ibv_wc wc = post(add(&words[3], mr_b->rkey(), 11));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(results[0], 100u);
  EXPECT_EQ(words[3], 111u);
}

TEST_F(AtomicsTest, CompareAndSwap) {
  words[0] = 7;
  for (std::uint64_t compare : {6, 7}) {
    const ibv_wc wc = post(Send(IBV_WR_ATOMIC_CMP_AND_SWP, 1, results, 8, mr_a)
                               .atomic(words, mr_b->rkey(), compare, 900));
    EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(results[0], 7u);
    EXPECT_EQ(words[0], compare == 7 ? 900u : 7u);
  }
}

TEST_F(AtomicsTest, AtomicWrite) {
  results[5] = 0x1122334455667788;
  const ibv_wc wc =
      post(Send(IBV_WR_ATOMIC_WRITE, 1, &results[5], 8, mr_a).remote(&words[2], mr_b->rkey()));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(words[2], results[5]);
}

TEST_F(AtomicsTest, TheDeviceSaysSo) {
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(a.context->query_device(&attributes), 0);
  EXPECT_EQ(attributes.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
}

TEST_F(AtomicsTest, RightsOfTheRegionAndOfTheQp) {
  device::Mr* without = b.reg(words, sizeof words, kAll & ~IBV_ACCESS_REMOTE_ATOMIC);
  device::Pd* other = nullptr;
  ASSERT_EQ(b.context->alloc_pd(&other), 0);
  device::Mr* foreign = nullptr;
  ASSERT_EQ(
      b.context->reg_mr({other, words, sizeof words, reinterpret_cast<std::uintptr_t>(words), kAll},
                        &foreign),
      0);
  struct Case {
    const char* name;
    std::uint32_t rkey;
    const void* address;
    unsigned qp_access;
    ibv_wc_status status;
  };
  const Case cases[] = {
      {"region without the right", without->rkey(), words, kAll, IBV_WC_REM_ACCESS_ERR},
      {"QP without the right", mr_b->rkey(), words, IBV_ACCESS_REMOTE_WRITE, IBV_WC_REM_ACCESS_ERR},
      {"another PD", foreign->rkey(), words, kAll, IBV_WC_REM_ACCESS_ERR},
      {"wrong key", mr_b->rkey() ^ 0x100, words, kAll, IBV_WC_REM_ACCESS_ERR},
      {"behind the end", mr_b->rkey(), words + 16, kAll, IBV_WC_REM_ACCESS_ERR},
      {"not aligned", mr_b->rkey(), reinterpret_cast<std::byte*>(words) + 4, kAll,
       IBV_WC_REM_INV_REQ_ERR},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ASSERT_NO_FATAL_FAILURE(connect_for(c.qp_access & ~unsigned{IBV_ACCESS_LOCAL_WRITE}));
    EXPECT_EQ(post(add(c.address, c.rkey, 1)).status, c.status);
    EXPECT_EQ(qp_b->state(), IBV_QPS_ERR);
    EXPECT_TRUE(b.sink.saw(
        c.status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, qp_b));
    for (std::uint64_t word : words) EXPECT_EQ(word, 0u);
  }
}

TEST_F(AtomicsTest, MemoryThatItsOwnerTookAway) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  device::Mr* mr = b.reg(page, 4096, kAll);
  ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
  EXPECT_EQ(post(add(page, mr->rkey(), 1)).status, IBV_WC_REM_ACCESS_ERR);
  munmap(page, 4096);
}

// A region whose addresses count from elsewhere than where it lies.
TEST_F(AtomicsTest, TheMemoryMustBeAlignedToo) {
  device::Mr* mr = nullptr;
  ASSERT_EQ(b.context->reg_mr({b.pd, reinterpret_cast<std::byte*>(words) + 4, 64, 0,
                               kAll | IBV_ACCESS_ZERO_BASED},
                              &mr),
            0);
  EXPECT_EQ(post(add(nullptr, mr->rkey(), 1)).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(AtomicsTest, TheResultNeedsLocalWrite) {
  device::Mr* read_only = a.reg(results, sizeof results, 0);
  Send request = add(words, mr_b->rkey(), 1);
  request.sge.lkey = read_only->lkey();
  EXPECT_EQ(post(request).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(results[0], 0u);
}

// Requests of several QPs and the program's own threads on one word.
TEST_F(AtomicsTest, QpsAndThreadsShareAWord) {
  std::vector<device::Qp*> qps;
  for (int i = 0; i < 4; ++i) {
    ASSERT_NO_FATAL_FAILURE(connect_for(IBV_ACCESS_REMOTE_ATOMIC));
    qps.push_back(qp_a);
  }
  constexpr unsigned kRounds = 200;
  std::atomic<bool> stop{false};
  std::uint64_t own = 0;
  std::thread program([&] {
    while (!stop.load()) {
      std::atomic_ref(words[0]).fetch_add(1);
      ++own;
    }
  });
  unsigned done = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    for (device::Qp* qp : qps) ASSERT_EQ(add(words, mr_b->rkey(), 1).post(qp), 0);
    run();
    done += static_cast<unsigned>(drain(a.cq).size());
  }
  run(std::chrono::milliseconds(10));
  done += static_cast<unsigned>(drain(a.cq).size());
  stop.store(true);
  program.join();
  EXPECT_EQ(done, kRounds * 4);
  EXPECT_EQ(words[0], kRounds * 4 + own);
}

}  // namespace
}  // namespace ferry::rnic::testing
