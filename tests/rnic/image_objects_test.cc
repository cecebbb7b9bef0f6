#include "image.h"

// The image with every kind of object: SRQs, XRC, windows, atomics under way, timestamps. What is
// described is restored into fresh RNICs, which go on.
namespace ferry::rnic::testing {
namespace {

using device::ObjectType;

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::size_t kWindow1 = 0x1000, kWindow2 = 0x2000, kPlain = 0x4000, kXrc = 0x5000;

void connect_xrc(Node& a, Node& b, device::Qp* initiator, device::Qp* target) {
  ibv_qp_attr to_b = attributes(IBV_QPS_INIT, target->qpn(), b.gid());
  ibv_qp_attr to_a = attributes(IBV_QPS_INIT, initiator->qpn(), a.gid());
  ASSERT_EQ(initiator->modify(to_b, kInitMask), 0);
  ASSERT_EQ(target->modify(to_a, kInitMask), 0);
  to_a.qp_state = to_b.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(initiator->modify(to_b, kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)),
            0);
  ASSERT_EQ(target->modify(to_a, kRtrMask), 0);
  to_a.qp_state = to_b.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(initiator->modify(to_b, kRtsMask), 0);
  ASSERT_EQ(target->modify(to_a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN), 0);
}

// b serves; a has asked for everything, and nothing has arrived.
Images make_images() {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  const auto content = pattern(kImageBytes, 7);
  std::memcpy(memory_a.data(), content.data(), kImageBytes);
  SimPair pair;
  pair.open(15);
  Node& a = pair.a;
  Node& b = pair.b;
  EXPECT_EQ(a.context->destroy(a.cq), 0);
  EXPECT_EQ(a.context->create_cq({.cqe = 15, .timestamps = true, .ignore_overrun = true}, &a.cq),
            0);
  device::Mr* mr_a = a.reg(memory_a.data(), kImageBytes);
  device::Mr* mr_b = b.reg(memory_b.data(), kImageBytes, kAccess);
  device::Srq* srq = b.create_srq(8);
  device::Qp* qp_a = a.create_qp({16, 4, 2, 2, 0});
  device::Qp* qp_b = b.create_qp({16, 4, 2, 2, 0}, false, srq);
  to_init(qp_a);
  to_init(qp_b);
  to_rts(qp_a, qp_b->qpn(), b.gid());
  to_rts(qp_b, qp_a->qpn(), a.gid());
  ibv_qp_attr rights{};
  rights.qp_access_flags = kAccess & ~unsigned{IBV_ACCESS_MW_BIND};
  EXPECT_EQ(qp_b->modify(rights, IBV_QP_ACCESS_FLAGS), 0);

  device::Xrcd* xrcd = nullptr;
  EXPECT_EQ(b.context->open_xrcd({}, &xrcd), 0);
  device::SrqInit xrc_srq_init;
  xrc_srq_init.pd = b.pd;
  xrc_srq_init.xrcd = xrcd;
  xrc_srq_init.cq = b.cq;
  xrc_srq_init.attributes = {8, 1, 0};
  device::Srq* xrc_srq = nullptr;
  EXPECT_EQ(b.context->create_srq(&xrc_srq_init, &xrc_srq), 0);
  device::QpInit init;
  init.type = IBV_QPT_XRC_SEND;
  init.pd = a.pd;
  init.send_cq = a.cq;
  init.cap = {4, 0, 1, 0, 0};
  device::Qp* initiator = nullptr;
  EXPECT_EQ(a.context->create_qp(&init, &initiator), 0);
  init = {};
  init.type = IBV_QPT_XRC_RECV;
  init.xrcd = xrcd;
  device::Qp* target = nullptr;
  EXPECT_EQ(b.context->create_qp(&init, &target), 0);
  connect_xrc(a, b, initiator, target);

  device::Mw* windows[3] = {};
  EXPECT_EQ(b.context->alloc_mw(b.pd, IBV_MW_TYPE_1, &windows[0]), 0);
  EXPECT_EQ(b.context->alloc_mw(b.pd, IBV_MW_TYPE_2, &windows[1]), 0);
  EXPECT_EQ(b.context->alloc_mw(b.pd, IBV_MW_TYPE_2, &windows[2]), 0);  // not bound
  ibv_mr application_mr{};
  application_mr.lkey = mr_b->lkey();
  const auto base = reinterpret_cast<std::uintptr_t>(memory_b.data());
  std::uint32_t rkey_1 = 0;
  EXPECT_EQ(qp_b->bind_mw(windows[0], {1, 0, mr_b, base + kWindow1, 256, IBV_ACCESS_REMOTE_WRITE},
                          &rkey_1),
            0);
  ibv_mw application_mw{};
  application_mw.handle = windows[1]->handle();
  const std::uint32_t rkey_2 = ibv_inc_rkey(windows[1]->rkey());
  ibv_send_wr bind{};
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw = {
      &application_mw,
      rkey_2,
      {&application_mr, base + kWindow2, 256, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED}};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(qp_b->post_send(&bind, &bad), 0);
  for (std::uint64_t id = 0; id < 3; ++id) {
    EXPECT_EQ(post_receive(srq, 30 + id, memory_b.data() + kPlain + id * 0x400, 0x400, mr_b), 0);
    EXPECT_EQ(post_receive(xrc_srq, 40 + id, memory_b.data() + kXrc + id * 0x400, 0x400, mr_b), 0);
  }
  EXPECT_EQ(srq->modify({0, 0, 3}, IBV_SRQ_LIMIT), 0);

  // One of each has arrived before; then the network fails.
  const auto post = [&](device::Qp* qp, Send request) {
    request.wr.sg_list = &request.sge;
    request.wr.qp_type.xrc.remote_srqn = qp == initiator ? xrc_srq->number() : 0;
    EXPECT_EQ(request.post(qp), 0);
  };
  post(qp_a, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, memory_a.data() + 0x8000, 8, mr_a)
                 .atomic(memory_b.data(), mr_b->rkey(), 5));
  post(initiator, Send(IBV_WR_SEND, 11, memory_a.data(), 10, mr_a));
  pair.run(std::chrono::milliseconds(50));
  pair.network.set_filter([](const auto&, const auto&, auto) { return false; });
  post(qp_a, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, memory_a.data() + 0x8000, 8, mr_a)
                 .atomic(memory_b.data(), mr_b->rkey(), 7));
  post(qp_a, Send(IBV_WR_ATOMIC_CMP_AND_SWP, 3, memory_a.data() + 0x8008, 8, mr_a)
                 .atomic(memory_b.data(), mr_b->rkey(), 12, 1000));
  post(qp_a, Send(IBV_WR_RDMA_WRITE, 4, memory_a.data(), 256, mr_a)
                 .remote(memory_b.data() + kWindow1, rkey_1));
  post(qp_a, Send(IBV_WR_RDMA_WRITE, 5, memory_a.data() + 256, 256, mr_a).remote(nullptr, rkey_2));
  Send invalidating(IBV_WR_SEND_WITH_INV, 6, memory_a.data() + 512, 600, mr_a);
  invalidating.wr.invalidate_rkey = rkey_2;
  post(qp_a, invalidating);
  post(initiator, Send(IBV_WR_SEND, 12, memory_a.data() + 2000, 900, mr_a));
  pair.run(std::chrono::microseconds(50));
  Images images;
  int count = 0;
  images.a = describe(*a.context, &count);
  EXPECT_EQ(count, 1 + 1 + 1 + 1 + 2);
  images.b = describe(*b.context, &count);
  EXPECT_EQ(count, 1 + 1 + 1 + 1 + 1 + 2 + 2 + 3);
  return images;
}

void go_on_from(const Images& images) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  const auto content = pattern(kImageBytes, 7);
  std::memcpy(memory_a.data(), content.data(), kImageBytes);
  const std::uint64_t after_first = 5;
  std::memcpy(memory_b.data(), &after_first, 8);
  SimPair pair;
  Restored a, b;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.a, 1));
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.b, 2));
  ASSERT_EQ(restore(*pair.a.context, images.a, &a), 0);
  ASSERT_EQ(restore(*pair.b.context, images.b, &b), 0);
  ASSERT_EQ(b.srqs.size(), 2u);
  ASSERT_EQ(b.mws.size(), 3u);
  EXPECT_EQ(b.srqs[0]->number(), 0u);
  EXPECT_NE(b.srqs[1]->number(), 0u);
  ibv_srq_attr attributes{};
  ASSERT_EQ(b.srqs[0]->query(&attributes), 0);
  EXPECT_EQ(attributes.srq_limit, 3u);
  EXPECT_EQ(attributes.max_wr, 8u);
  pair.run();
  EXPECT_EQ(pair.network.next_event_time(), port::kSimNever) << "silent before resume()";
  pair.a.context->resume(false);
  pair.b.context->resume(false);
  pair.run(std::chrono::seconds(1));

  // What waited at the stop, then the rest, each once.
  std::map<std::uint64_t, ibv_wc> at_a;
  device::CompletionTimes times;
  ibv_wc wc{};
  std::uint64_t clock = 0;
  while (a.cqs[0]->poll_one(&wc, &times) == 1) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc.wr_id;
    EXPECT_TRUE(at_a.emplace(wc.wr_id, wc).second) << wc.wr_id;
    EXPECT_NE(times.clock, 0u);
    if (wc.wr_id == 1) clock = times.clock;
  }
  EXPECT_EQ(at_a.size(), 8u);
  EXPECT_NE(clock, 0u) << "of a completion that was added before the move";
  EXPECT_EQ(at_a[2].opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(at_a[3].opcode, IBV_WC_COMP_SWAP);
  std::uint64_t value = 0;
  std::memcpy(&value, memory_b.data(), 8);
  EXPECT_EQ(value, 1000u) << "5 + 7, then swapped, each once";
  std::memcpy(&value, memory_a.data() + 0x8000, 8);
  EXPECT_EQ(value, 5u);
  std::memcpy(&value, memory_a.data() + 0x8008, 8);
  EXPECT_EQ(value, 12u);
  EXPECT_EQ(std::memcmp(memory_b.data() + kWindow1, content.data(), 256), 0);
  EXPECT_EQ(std::memcmp(memory_b.data() + kWindow2, content.data() + 256, 256), 0);

  std::map<std::uint64_t, ibv_wc> at_b;
  for (const ibv_wc& each : SimPair::drain(b.cqs[0])) at_b[each.wr_id] = each;
  ASSERT_EQ(at_b.size(), 3u);
  EXPECT_EQ(at_b[40].byte_len, 10u);
  EXPECT_EQ(at_b[30].byte_len, 600u);
  EXPECT_EQ(at_b[30].wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(at_b[30].invalidated_rkey, b.mws[1]->rkey());
  EXPECT_EQ(at_b[41].byte_len, 900u);
  EXPECT_EQ(std::memcmp(memory_b.data() + kPlain, content.data() + 512, 600), 0);
  EXPECT_EQ(std::memcmp(memory_b.data() + kXrc + 0x400, content.data() + 2000, 900), 0);
  EXPECT_EQ(pair.b.sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, b.srqs[0]), 1u);

  // Every object is still held by those that use it.
  Context& context = *pair.b.context;
  EXPECT_EQ(context.destroy(b.pd), EBUSY);
  EXPECT_EQ(context.destroy(b.xrcd), EBUSY);
  EXPECT_EQ(context.destroy(b.srqs[0]), EBUSY);
  EXPECT_EQ(context.destroy(b.mr), EBUSY) << "the window of type 1";
  EXPECT_EQ(context.destroy(b.mws[0]), 0);
  EXPECT_EQ(context.destroy(b.mr), 0) << "that of type 2 was invalidated";
  for (device::Mw* mw : {b.mws[1], b.mws[2]}) EXPECT_EQ(context.destroy(mw), 0);
  for (device::Qp* qp : b.qps) EXPECT_EQ(context.destroy(qp), 0);
  for (device::Srq* srq : b.srqs) EXPECT_EQ(context.destroy(srq), 0);
  EXPECT_EQ(context.destroy(b.xrcd), 0);
  EXPECT_EQ(context.destroy(b.cqs[0]), 0);
  EXPECT_EQ(context.destroy(b.pd), 0);
}

TEST(ImageOfEveryObject, GoesOnWhereItWasDescribed) {
  go_on_from(make_images());
}

TEST(ImageOfEveryObject, GoldenFilesOfVersion1GoOn) {
  if (write_golden(make_images, "objects_requester", "objects_responder")) {
    GTEST_SKIP() << "written";
  }
  go_on_from(read_golden("objects_requester", "objects_responder"));
}

TEST(ImageOfEveryObject, SizesOfRecords) {
  const Images images = make_images();
  const auto sizes = sizes_of_last_records(images.b);
  EXPECT_EQ(sizes.at(ObjectType::kXrcd), 12u);
  EXPECT_EQ(sizes.at(ObjectType::kSrq), 45u + 2 * (9 + 16));  // two WQEs are left
  EXPECT_EQ(sizes.at(ObjectType::kMw), 61u);
}

TEST(ImageOfEveryObject, ChangedBytesDoNoHarm) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  SimPair pair;
  const auto image = read_golden("objects_requester", "objects_responder").b;
  ASSERT_GT(change_bytes(pair, image, 2000), 200u);
}

TEST(ImageOfEveryObject, WindowsAndQueuesNeedWhatTheyName) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  SimPair pair;
  Node node;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, node, 60));
  const auto image = read_golden("objects_requester", "objects_responder").b;
  std::map<ObjectType, std::vector<std::byte>> first;
  for (std::span<const std::byte> rest = image; !rest.empty();) {
    const auto before = rest;
    device::Record record;
    ASSERT_TRUE(device::next_record(&rest, &record));
    const auto bytes = before.first(before.size() - rest.size());
    first.try_emplace(record.type, bytes.begin(), bytes.end());
  }
  device::Object* object = nullptr;
  const auto create = [&](ObjectType type) {
    return node.context->restore(type, device::RestoreCommand::kCreate, first[type], &object);
  };
  EXPECT_EQ(create(ObjectType::kXrcd), ENOENT);
  EXPECT_EQ(create(ObjectType::kSrq), ENOENT);
  EXPECT_EQ(create(ObjectType::kMw), ENOENT);
  ASSERT_EQ(create(ObjectType::kContext), 0);
  EXPECT_EQ(create(ObjectType::kSrq), ENOENT);  // its PD
  ASSERT_EQ(create(ObjectType::kPd), 0);
  EXPECT_EQ(create(ObjectType::kMw), ENOENT);  // its MR
  ASSERT_EQ(create(ObjectType::kXrcd), 0);
  EXPECT_EQ(create(ObjectType::kXrcd), EEXIST);
  ASSERT_EQ(create(ObjectType::kCq), 0);
  EXPECT_EQ(create(ObjectType::kQp), ENOENT);  // its SRQ
  ASSERT_EQ(create(ObjectType::kSrq), 0);
  EXPECT_EQ(create(ObjectType::kSrq), EEXIST);
  ASSERT_EQ(create(ObjectType::kMr), 0);
  ASSERT_EQ(create(ObjectType::kMw), 0);
  EXPECT_EQ(create(ObjectType::kMw), EEXIST);
}

}  // namespace
}  // namespace ferry::rnic::testing
