#include "image.h"

// Images: the bytes of every object, their sizes, images of earlier versions, and images that are
// broken.
namespace ferry::rnic::testing {
namespace {

using device::ObjectType;
using device::RestoreCommand;

// Two RNICs in the middle of everything: completions that nobody has polled, an armed CQ, requests
// of every kind of which nothing has arrived, receives, and QPs of other states.
Images make_images() {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  const auto content = pattern(kImageBytes, 5);
  std::memcpy(memory_a.data(), content.data(), kImageBytes);
  SimPair pair;
  pair.open(15);
  pair.connect({16, 8, 2, 2, 32});
  device::Mr* mr_a = pair.a.reg(memory_a.data(), kImageBytes);
  device::Mr* mr_b = pair.b.reg(memory_b.data(), kImageBytes);
  device::Qp* const qp_a = pair.qp_a;
  device::Qp* const qp_b = pair.qp_b;
  pair.a.create_qp({1, 1, 1, 1, 0});
  to_init(pair.a.create_qp({2, 2, 1, 1, 0}));
  device::Qp* failed = pair.a.create_qp({2, 2, 1, 1, 0});
  EXPECT_EQ(failed->modify(attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);

  for (std::uint64_t id = 20; id < 24; ++id) {
    EXPECT_EQ(post_receive(qp_b, id, memory_b.data() + 0x8000 + (id - 20) * 0x800, 0x800, mr_b), 0);
  }
  EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, 1, memory_a.data(), 3000, mr_a)
                .remote(memory_b.data(), mr_b->rkey())
                .post(qp_a),
            0);
  pair.run(std::chrono::milliseconds(50));  // also HELLO
  EXPECT_EQ(pair.a.cq->arm(true), 0);
  pair.network.set_filter([](const auto&, const auto&, auto) { return false; });
  EXPECT_EQ(Send(IBV_WR_SEND_WITH_IMM, 2, memory_a.data() + 100, 1500, mr_a)
                .immediate(0x01020304)
                .post(qp_a),
            0);
  EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, 3, memory_a.data() + 3000, 3000, mr_a,
                 IBV_SEND_SIGNALED | IBV_SEND_FENCE)
                .remote(memory_b.data() + 3000, mr_b->rkey())
                .post(qp_a),
            0);
  EXPECT_EQ(Send(IBV_WR_RDMA_READ, 4, memory_a.data() + 0xC000, 2500, mr_a)
                .remote(memory_b.data(), mr_b->rkey())
                .post(qp_a),
            0);
  EXPECT_EQ(Send(IBV_WR_SEND, 5, "inline", 6, nullptr,
                 IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_SOLICITED)
                .post(qp_a),
            0);
  pair.run(std::chrono::microseconds(50));
  Images images;
  int count = 0;
  images.a = describe(*pair.a.context, &count);
  EXPECT_EQ(count, 1 + 1 + 1 + 1 + 4);
  images.b = describe(*pair.b.context, &count);
  EXPECT_EQ(count, 1 + 1 + 1 + 1 + 1);
  return images;
}

// Restores both and lets them finish.
void go_on_from(const Images& images) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  auto content = pattern(kImageBytes, 5);
  std::memcpy(memory_a.data(), content.data(), kImageBytes);
  std::memcpy(memory_b.data(), content.data(), 3000);  // what the first WRITE had brought
  SimPair pair;
  Restored a, b;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.a, 1));
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.b, 2));
  ASSERT_EQ(restore(*pair.a.context, images.a, &a), 0);
  ASSERT_EQ(restore(*pair.b.context, images.b, &b), 0);
  ASSERT_EQ(a.qps.size(), 4u);
  ASSERT_EQ(b.qps.size(), 1u);
  EXPECT_EQ(a.qps[1]->state(), IBV_QPS_RESET);
  EXPECT_EQ(a.qps[2]->state(), IBV_QPS_INIT);
  EXPECT_EQ(a.qps[3]->state(), IBV_QPS_ERR);
  EXPECT_EQ(a.cq->capacity(), 15);
  pair.run();
  EXPECT_EQ(pair.network.next_event_time(), port::kSimNever) << "silent before resume()";

  pair.a.context->resume(false);
  pair.b.context->resume(false);
  pair.run(std::chrono::seconds(1));
  EXPECT_EQ(pair.a.sink.completions(), 0);  // armed for solicited ones, of which it gets none

  const auto at_a = SimPair::drain(a.cq);
  ASSERT_EQ(at_a.size(), 5u);
  const ibv_wc_opcode opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_RDMA_WRITE,
                                   IBV_WC_RDMA_READ, IBV_WC_SEND};
  for (unsigned i = 0; i < 5; ++i) {
    EXPECT_EQ(at_a[i].wr_id, i + 1);
    EXPECT_EQ(at_a[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(at_a[i].opcode, opcodes[i]);
    EXPECT_EQ(at_a[i].qp_num, a.qps[0]->qpn());
  }
  const auto at_b = SimPair::drain(b.cq);
  ASSERT_EQ(at_b.size(), 2u);
  EXPECT_EQ(at_b[0].wr_id, 20u);
  EXPECT_EQ(at_b[0].byte_len, 1500u);
  EXPECT_EQ(at_b[0].imm_data, 0x01020304u);
  EXPECT_EQ(at_b[1].wr_id, 21u);
  EXPECT_EQ(at_b[1].byte_len, 6u);
  EXPECT_EQ(std::memcmp(memory_b.data(), content.data(), 6000), 0);
  EXPECT_EQ(std::memcmp(memory_b.data() + 0x8000, content.data() + 100, 1500), 0);
  EXPECT_EQ(std::memcmp(memory_b.data() + 0x8800, "inline", 6), 0);
  EXPECT_EQ(std::memcmp(memory_a.data() + 0xC000, content.data(), 2500), 0);

  // New requests, new objects.
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 6, memory_a.data(), 10'000, a.mr)
                .remote(memory_b.data(), b.mr->rkey())
                .post(a.qps[0]),
            0);
  pair.run(std::chrono::milliseconds(50));
  ASSERT_EQ(SimPair::drain(a.cq).size(), 1u);
  EXPECT_EQ(std::memcmp(memory_b.data(), content.data(), 10'000), 0);
  device::Pd* pd = nullptr;
  EXPECT_EQ(pair.a.context->alloc_pd(&pd), 0);
}

TEST(Image, GoesOnWhereItWasDescribed) {
  go_on_from(make_images());
}

TEST(Image, GoldenFilesOfVersion1GoOn) {
  if (write_golden(make_images, "requester", "responder")) GTEST_SKIP() << "written";
  go_on_from(read_golden("requester", "responder"));
}

// Bytes of each record of an image, with its frame.
TEST(Image, SizesOfRecords) {
  const Images images = make_images();
  auto sizes = sizes_of_last_records(images.a);  // QPs are in RESET or ERR
  EXPECT_EQ(sizes[ObjectType::kContext], 52u);
  EXPECT_EQ(sizes[ObjectType::kPd], 12u);
  EXPECT_EQ(sizes[ObjectType::kMr], 48u);
  EXPECT_EQ(sizes[ObjectType::kCq], 24u + 32u);  // one completion waits
  EXPECT_EQ(sizes[ObjectType::kQp], 399u);
}

TEST(Image, DescribeNeedsAStoppedContext) {
  SimPair pair;
  pair.open();
  std::vector<std::byte> image;
  int count = 0;
  EXPECT_EQ(pair.a.context->describe(&image, &count), EBUSY);
  std::vector<rnic::Slot> slots;
  EXPECT_EQ(pair.a.context->detach(&slots), EINVAL);
  EXPECT_EQ(pair.a.context->attach({}), EINVAL);
}

struct BrokenImage : ::testing::Test {
  FixedMemory memory_a{kMemoryA}, memory_b{kMemoryB};
  SimPair pair;
  Sink sink;

  std::unique_ptr<Context> fresh() {
    Context::Options options = pair.options(50);
    options.sink = &sink;
    int error = 0;
    auto context = Context::open(options, &error);
    EXPECT_EQ(error, 0);
    return context;
  }
};

std::vector<std::byte> golden() {
  return read_golden("requester", "responder").a;
}

TEST_F(BrokenImage, EveryTruncationIsRefused) {
  const auto image = golden();
  std::set<std::size_t> whole;  // ends of records
  for (std::span<const std::byte> rest = image; !rest.empty();) {
    device::Record record;
    ASSERT_TRUE(device::next_record(&rest, &record));
    whole.insert(image.size() - rest.size());
  }
  for (std::size_t length = 1; length < image.size(); ++length) {
    auto context = fresh();
    Restored restored;
    const int error = restore(*context, std::span(image).first(length), &restored);
    if (whole.contains(length)) {
      EXPECT_EQ(error, 0) << length;
    } else {
      EXPECT_NE(error, 0) << length;
    }
  }
}

TEST_F(BrokenImage, ChangedBytesDoNoHarm) {
  constexpr unsigned kRounds = 3000;
  EXPECT_GT(change_bytes(pair, golden(), kRounds), kRounds / 10);
}

TEST_F(BrokenImage, MtuThatDoesNotExist) {
  constexpr std::size_t kPathMtu = 98;  // of a QP's record (docs/image.md)
  auto image = golden();
  std::size_t at = 0;
  for (std::span<const std::byte> rest = image; !rest.empty();) {
    const std::size_t begin = image.size() - rest.size();
    device::Record record;
    ASSERT_TRUE(device::next_record(&rest, &record));
    if (record.type == ObjectType::kQp && at == 0)
      at = begin + device::kRecordHeaderSize + kPathMtu;
  }
  ASSERT_NE(at, 0u);
  ASSERT_EQ(std::to_integer<int>(image[at]), int{IBV_MTU_1024});
  image[at] = std::byte{IBV_MTU_4096 + 1};
  auto context = fresh();
  Restored restored;
  EXPECT_EQ(restore(*context, image, &restored), EINVAL);
}

TEST_F(BrokenImage, ObjectsOutOfOrder) {
  const auto image = golden();
  std::map<ObjectType, std::vector<std::byte>> records;
  for (std::span<const std::byte> rest = image; !rest.empty();) {
    const auto before = rest;
    device::Record record;
    ASSERT_TRUE(device::next_record(&rest, &record));
    const auto bytes = before.first(before.size() - rest.size());
    records[record.type].assign(bytes.begin(), bytes.end());
  }
  auto context = fresh();
  device::Object* object = nullptr;
  const auto create = [&](ObjectType type) {
    return context->restore(type, RestoreCommand::kCreate, records[type], &object);
  };
  EXPECT_EQ(create(ObjectType::kPd), ENOENT);  // no context yet
  EXPECT_EQ(create(ObjectType::kContext), 0);
  EXPECT_EQ(create(ObjectType::kContext), EBUSY);
  EXPECT_EQ(create(ObjectType::kMr), ENOENT);  // its PD
  EXPECT_EQ(create(ObjectType::kQp), ENOENT);
  EXPECT_EQ(create(ObjectType::kPd), 0);
  EXPECT_EQ(create(ObjectType::kPd), EEXIST);
  EXPECT_EQ(create(ObjectType::kMr), 0);
  EXPECT_EQ(create(ObjectType::kQp), ENOENT);  // its CQ
  EXPECT_EQ(create(ObjectType::kCq), 0);
  EXPECT_EQ(create(ObjectType::kQp), 0);
  // The wrong command, the wrong object, the wrong type.
  EXPECT_EQ(
      context->restore(ObjectType::kPd, RestoreCommand::kRefill, records[ObjectType::kPd], &object),
      EINVAL);
  EXPECT_EQ(
      context->restore(ObjectType::kCq, RestoreCommand::kRefill, records[ObjectType::kCq], &object),
      EINVAL);
  EXPECT_EQ(
      context->restore(ObjectType::kMr, RestoreCommand::kCreate, records[ObjectType::kPd], &object),
      EINVAL);
  // A context that is in use takes no other's identity.
  auto used = fresh();
  device::Pd* pd = nullptr;
  ASSERT_EQ(used->alloc_pd(&pd), 0);
  EXPECT_EQ(used->restore(ObjectType::kContext, RestoreCommand::kCreate,
                          records[ObjectType::kContext], &object),
            EBUSY);
}

}  // namespace
}  // namespace ferry::rnic::testing
