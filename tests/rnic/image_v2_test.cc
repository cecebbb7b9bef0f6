#include "image.h"

// What version 2 of the image adds: moderated CQs, null MRs, QPs with a rate limit and QPs that do
// not hear themselves in groups (docs/image.md).
namespace ferry::rnic::testing {
namespace {

using device::ObjectType;

constexpr std::uint16_t kCount = 4, kPeriod = 50'000;  // us
constexpr std::uint32_t kRate = 8000;                  // kbit/s: a byte in a microsecond
constexpr std::uint32_t kBurst = 1000;

// a has posted WRITEs; two are done, and their event is held back.
Images make_images() {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  std::memset(memory_a.data(), 'x', kImageBytes);
  SimPair pair;
  pair.open(15);
  pair.connect({16, 4, 2, 2, 0}, true);
  device::Mr* mr_a = pair.a.reg(memory_a.data(), kImageBytes);
  device::Mr* mr_b = pair.b.reg(memory_b.data(), kImageBytes);
  device::Mr* null_mr = nullptr;
  EXPECT_EQ(pair.a.context->alloc_null_mr(pair.a.pd, &null_mr), 0);
  device::QpInit init;
  init.type = IBV_QPT_UD;
  init.pd = pair.a.pd;
  init.send_cq = init.recv_cq = pair.a.cq;
  init.cap = {4, 4, 1, 1, 0};
  init.block_multicast_loopback = true;
  device::Qp* ud = nullptr;
  EXPECT_EQ(pair.a.context->create_qp(&init, &ud), 0);
  EXPECT_EQ(pair.a.cq->moderate(kCount, kPeriod), 0);
  EXPECT_EQ(pair.qp_a->limit_rate({kRate, kBurst, 0, 0}), 0);
  EXPECT_EQ(pair.a.cq->arm(false), 0);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, id, memory_a.data(), 10, mr_a)
                  .remote(memory_b.data(), mr_b->rkey())
                  .post(pair.qp_a),
              0);
  }
  pair.run();
  Send from_null(IBV_WR_RDMA_WRITE, 3, memory_a.data(), 10, null_mr);
  pair.network.set_filter([](const auto&, const auto&, auto) { return false; });
  EXPECT_EQ(from_null.remote(memory_b.data() + 5, mr_b->rkey()).post(pair.qp_a), 0);
  EXPECT_EQ(pair.a.sink.completions(), 0);
  Images images;
  int count = 0;
  images.a = describe(*pair.a.context, &count);
  EXPECT_EQ(count, 1 + 1 + 2 + 1 + 2);
  EXPECT_EQ(pair.a.sink.completions(), 1) << "no timer goes along";
  images.b = describe(*pair.b.context, &count);
  return images;
}

void go_on_from(const Images& images) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  std::memset(memory_b.data(), 'x', 20);
  SimPair pair;
  Restored a, b;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.a, 1));
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.b, 2));
  ASSERT_EQ(restore(*pair.a.context, images.a, &a), 0);
  ASSERT_EQ(restore(*pair.b.context, images.b, &b), 0);
  ASSERT_EQ(a.qps.size(), 2u);
  EXPECT_EQ(a.mr->rkey(), 0u) << "the null MR was the last";
  ibv_qp_attr attributes{};
  ASSERT_EQ(a.qps[0]->query(&attributes), 0);
  EXPECT_EQ(attributes.rate_limit, kRate);
  ASSERT_EQ(a.cqs[0]->arm(false), 0);
  pair.a.context->resume(false);
  pair.b.context->resume(false);
  pair.run(std::chrono::milliseconds(20));
  EXPECT_EQ(pair.a.sink.completions(), 0) << "one of four, and its time has not come";
  pair.run(std::chrono::milliseconds(60));
  EXPECT_EQ(pair.a.sink.completions(), 1);
  EXPECT_EQ(SimPair::drain(a.cqs[0]).size(), 3u);
  EXPECT_EQ(static_cast<char>(memory_b.data()[4]), 'x');
  for (int i = 5; i < 15; ++i) EXPECT_EQ(static_cast<char>(memory_b.data()[i]), 0) << i;
  EXPECT_EQ(static_cast<char>(memory_b.data()[15]), 'x');
}

TEST(ImageOfVersion2, GoesOnWhereItWasDescribed) {
  go_on_from(make_images());
}

TEST(ImageOfVersion2, GoldenFilesGoOn) {
  if (write_golden(make_images, "a", "b", 2)) GTEST_SKIP() << "written";
  go_on_from(read_golden("a", "b", 2));
}

TEST(ImageOfVersion2, IsDescribedAgainAsItWas) {
  const Images images = make_images();
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  SimPair pair;
  Restored a;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.a, 1));
  ASSERT_EQ(restore(*pair.a.context, images.a, &a), 0);
  std::vector<std::byte> again;
  int count = 0;
  ASSERT_EQ(pair.a.context->describe(&again, &count), 0);
  EXPECT_EQ(to_text(again), to_text(images.a));
}

TEST(ImageOfVersion2, OnlyRecordsThatNeedItHaveIt) {
  const Images images = make_images();
  std::multimap<ObjectType, int> versions;
  device::Record record;
  for (std::span<const std::byte> rest = images.a; device::next_record(&rest, &record);) {
    versions.emplace(record.type, record.version);
  }
  const std::multimap<ObjectType, int> expected = {
      {ObjectType::kContext, 1}, {ObjectType::kPd, 1}, {ObjectType::kMr, 1}, {ObjectType::kMr, 2},
      {ObjectType::kCq, 2},      {ObjectType::kQp, 2}, {ObjectType::kQp, 2}};
  EXPECT_EQ(versions, expected);
  for (std::span<const std::byte> rest = images.b; device::next_record(&rest, &record);) {
    EXPECT_EQ(record.version, 1);
  }
}

TEST(ImageOfVersion2, ChangedBytesDoNoHarm) {
  const auto image = make_images().a;
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  SimPair pair;
  ASSERT_GT(change_bytes(pair, image, 1000), 100u);
}

}  // namespace
}  // namespace ferry::rnic::testing
