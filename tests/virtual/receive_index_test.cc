#include "virtual/receives/receive_index.h"

#include <gtest/gtest.h>

namespace ferry::virt {
namespace {

// The receives of an SRQ, as threads post them and poll their completions.
struct Receives : ::testing::Test {
  PostedReceives noted{16, 2};
  ReceiveIndex index;

  void post(std::uint64_t wr_id, std::uint64_t address) {
    ibv_sge sges[] = {{address, 8, 1}, {address + 100, 8, 1}};
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = sges;
    wr.num_sge = 2;
    noted.note(wr);
  }
  // 0: it finds none.
  std::uint64_t address_of(std::uint64_t wr_id) {
    const auto found = index.find(noted, wr_id);
    return found ? found->elements[0].addr : 0;
  }
};

TEST_F(Receives, AreFoundInAnyOrder) {
  for (std::uint64_t id = 1; id <= 8; ++id) post(id, 10 * id);
  for (const std::uint64_t id : {5u, 1u, 8u, 3u}) EXPECT_EQ(address_of(id), 10 * id);
  post(9, 90);
  EXPECT_EQ(address_of(9), 90u);
  EXPECT_EQ(address_of(2), 20u);
}

TEST_F(Receives, OfWhichThereAreNoneAreNotFound) {
  EXPECT_EQ(address_of(1), 0u);
  post(1, 10);
  EXPECT_EQ(address_of(2), 0u);
  EXPECT_EQ(address_of(1), 10u);
}

TEST_F(Receives, OfTheSameMemoryCanHaveOneNumber) {
  for (int i = 0; i < 20; ++i) {
    post(7, 70);
    EXPECT_EQ(address_of(7), 70u);
  }
}

// Nobody could tell which of them has come.
TEST_F(Receives, OfOtherMemoryWithTheSameNumberAreNotTakenForEachOther) {
  post(7, 70);
  post(7, 80);
  EXPECT_EQ(address_of(7), 0u);
  post(7, 80);
  EXPECT_EQ(address_of(7), 0u);
  for (std::uint64_t id = 100; id < 107; ++id) post(id, id);
  EXPECT_EQ(address_of(7), 80u) << "the first one is too old to be of this completion";
}

TEST_F(Receives, ThatAreOldAreForgotten) {
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    post(id, 10 * id);
    if (id % 7 == 0) {
      EXPECT_EQ(address_of(id), 10 * id);
    }
  }
  EXPECT_EQ(address_of(993), 9930u);
  EXPECT_EQ(address_of(992), 0u) << "the other half of the ring";
  EXPECT_EQ(address_of(1), 0u);
}

TEST_F(Receives, StayWhenTheRingGrows) {
  for (std::uint64_t id = 1; id <= 20; ++id) post(id, 10 * id);
  EXPECT_EQ(address_of(20), 200u);
  {
    const auto lock = index.lock();
    noted.resize(64);
  }
  for (std::uint64_t id = 21; id <= 40; ++id) post(id, 10 * id);
  for (std::uint64_t id = 13; id <= 40; ++id) EXPECT_EQ(address_of(id), 10 * id);
}

}  // namespace
}  // namespace ferry::virt
