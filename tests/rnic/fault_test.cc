#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "loopback.h"
#include "sim_pair.h"

// Memory that goes away under a registered MR: a completion or a NAK with the right status, never a
// crash.
namespace ferry::rnic::testing {
namespace {

constexpr std::size_t kSize = 256 * 1024;

struct Fault : ::testing::Test, SimPair {
  std::byte* memory_a = map();
  std::byte* memory_b = map();
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;

  static std::byte* map() {
    return static_cast<std::byte*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Fault() override {
    munmap(memory_a, kSize);
    munmap(memory_b, kSize);
  }
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect());
    mr_a = a.reg(memory_a, kSize);
    mr_b = b.reg(memory_b, kSize);
  }
  ibv_wc_status result(device::Cq* cq) {
    run(std::chrono::milliseconds(20));
    const auto completions = drain(cq);
    EXPECT_EQ(completions.size(), 1u);
    return completions.empty() ? IBV_WC_GENERAL_ERR : completions[0].status;
  }
  int post(ibv_wr_opcode opcode) {
    return Send(opcode, 1, memory_a, kSize, mr_a).remote(memory_b, mr_b->rkey()).post(qp_a);
  }
};

TEST_F(Fault, SourceOfAWriteIsUnmapped) {
  munmap(memory_a + kSize / 2, 4096);
  ASSERT_EQ(post(IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Fault, TargetOfAWriteIsUnmapped) {
  munmap(memory_b + kSize / 2, 4096);
  ASSERT_EQ(post(IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Fault, TargetOfAWriteIsReadOnly) {
  mprotect(memory_b, kSize, PROT_READ);
  ASSERT_EQ(post(IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Fault, SourceOfAReadIsProtected) {
  mprotect(memory_b + kSize / 2, 4096, PROT_NONE);
  ASSERT_EQ(post(IBV_WR_RDMA_READ), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Fault, TargetOfAReadIsProtected) {
  mprotect(memory_a + kSize / 2, 4096, PROT_NONE);
  ASSERT_EQ(post(IBV_WR_RDMA_READ), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Fault, ReceiveBufferIsProtected) {
  ASSERT_EQ(post_receive(qp_b, 2, memory_b, kSize, mr_b), 0);
  mprotect(memory_b + kSize / 2, 4096, PROT_NONE);
  ASSERT_EQ(post(IBV_WR_SEND), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(result(b.cq), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Fault, FileUnderTheMappingIsTruncated) {
  FILE* file = std::tmpfile();
  ASSERT_EQ(ftruncate(fileno(file), kSize), 0);
  void* mapped =
      mmap(memory_b, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fileno(file), 0);
  ASSERT_EQ(mapped, memory_b);
  ASSERT_EQ(ftruncate(fileno(file), kSize / 2), 0);
  ASSERT_EQ(post(IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(result(a.cq), IBV_WC_REM_ACCESS_ERR);
  std::fclose(file);
}

// With threads, while the writes run.
TEST(LiveFault, ProtectedDuringTraffic) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false)));
  std::byte* target = Fault::map();
  std::vector<std::byte> source(kSize);
  device::Mr* mr_a = pair.a.reg(source.data(), kSize);
  device::Mr* mr_b = pair.b.reg(target, kSize);
  std::atomic<int> written{0};
  std::thread spoiler([&] {
    while (written < 20) std::this_thread::yield();
    mprotect(target, kSize, PROT_NONE);
  });
  ibv_wc wc{};
  do {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, source.data(), kSize, mr_a)
                  .remote(target, mr_b->rkey())
                  .post(pair.qp_a),
              0);
    wc = wait_completion(pair.a.cq);
    ++written;
  } while (wc.status == IBV_WC_SUCCESS && written < 100'000);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  spoiler.join();
  munmap(target, kSize);
}

}  // namespace
}  // namespace ferry::rnic::testing
