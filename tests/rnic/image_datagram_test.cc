#include "image.h"

// The image of UD QPs and address handles: restored ones send and receive under the names that
// their peers know.
namespace ferry::rnic::testing {
namespace {

using device::ObjectType;

constexpr std::uint32_t kQkey = 0x11223344;
constexpr std::size_t kGrh = 40, kReceive = 0x1000, kReceiveBytes = 0x400;

device::Qp* create_ud(const Node& node) {
  device::QpInit init;
  init.type = IBV_QPT_UD;
  init.pd = node.pd;
  init.send_cq = init.recv_cq = node.cq;
  init.cap = {8, 8, 2, 2, 64};
  device::Qp* qp = nullptr;
  EXPECT_EQ(node.context->create_qp(&init, &qp), 0);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qkey = kQkey;
  EXPECT_EQ(qp->modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  a.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(qp->modify(a, IBV_QP_STATE), 0);
  a.qp_state = IBV_QPS_RTS;
  a.sq_psn = 0xFFFFFE;
  EXPECT_EQ(qp->modify(a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  return qp;
}

device::Ah* create_ah(Context& context, device::Pd* pd, const ibv_gid& gid) {
  ibv_ah_attr path{};
  path.is_global = 1;
  path.grh.dgid = gid;
  path.grh.hop_limit = 64;
  path.port_num = 1;
  device::Ah* ah = nullptr;
  EXPECT_EQ(context.create_ah(pd, path, &ah), 0);
  return ah;
}

int send(device::Qp* qp, const device::Ah* ah, std::uint32_t remote_qpn, Send request) {
  ibv_ah application_ah{};
  application_ah.handle = ah->handle();
  request.wr.sg_list = &request.sge;
  request.wr.wr.ud = {&application_ah, remote_qpn, kQkey};
  return request.post(qp);
}

// The header as a receiver over IPv4 sees it (annex A17.4.5.1): 20 bytes of nothing, then the IP
// header of a packet from `source` to `destination`, each the last byte of 10.0.0.x.
std::vector<std::byte> grh_without_checksum(std::uint8_t source, std::uint8_t destination,
                                            std::size_t udp_length) {
  std::vector<std::byte> grh(kGrh);
  const std::size_t total = 20 + udp_length;
  const auto high = static_cast<std::uint8_t>(total >> 8), low = static_cast<std::uint8_t>(total);
  const std::uint8_t ip[20] = {0x45, 0, high, low, 0, 0,      0x40, 0, 64, 17,
                               0,    0, 10,   0,   0, source, 10,   0, 0,  destination};
  std::memcpy(grh.data() + 20, ip, sizeof ip);
  return grh;
}

void expect_grh(const std::byte* at, std::uint8_t source, std::uint8_t destination,
                std::size_t payload, bool has_immediate = false) {
  std::vector<std::byte> seen(at, at + kGrh);
  std::uint32_t sum = 0;
  for (std::size_t i = 20; i < kGrh; i += 2) {
    sum += static_cast<std::uint32_t>(seen[i]) << 8 | static_cast<std::uint32_t>(seen[i + 1]);
  }
  EXPECT_EQ((sum & 0xFFFF) + (sum >> 16), 0xFFFFu) << "checksum of the IP header";
  seen[30] = seen[31] = std::byte{0};
  const std::size_t headers = has_immediate ? 24 : 20, icrc = 4, padding = (4 - payload % 4) % 4;
  EXPECT_EQ(to_text(seen), to_text(grh_without_checksum(source, destination,
                                                        8 + headers + payload + padding + icrc)));
}

struct Parties {
  FixedMemory memory_a{kMemoryA}, memory_b{kMemoryB};
  SimPair pair;
  device::Mr *mr_a = nullptr, *mr_b = nullptr;
  device::Qp *qp_a = nullptr, *qp_b = nullptr;
  device::Ah* ah_a = nullptr;  // towards b

  void make() {
    const auto content = pattern(kImageBytes, 7);
    std::memcpy(memory_a.data(), content.data(), kImageBytes);
    pair.open(15);
    mr_a = pair.a.reg(memory_a.data(), kImageBytes);
    mr_b = pair.b.reg(memory_b.data(), kImageBytes);
    qp_a = create_ud(pair.a);
    qp_b = create_ud(pair.b);
    ah_a = create_ah(*pair.a.context, pair.a.pd, pair.b.gid());
    for (std::uint64_t id = 0; id < 4; ++id) {
      EXPECT_EQ(post_receive(qp_b, id, memory_b.data() + kReceive + id * kReceiveBytes,
                             kReceiveBytes, mr_b),
                0);
    }
    EXPECT_EQ(send(qp_a, ah_a, qp_b->qpn(), Send(IBV_WR_SEND, 1, memory_a.data(), 101, mr_a)), 0);
    pair.run();
    // What is posted to a stopped QP waits in its image.
    std::uint32_t unacked = 0;
    EXPECT_EQ(pair.a.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    EXPECT_EQ(send(qp_a, ah_a, qp_b->qpn(),
                   Send(IBV_WR_SEND_WITH_IMM, 2, memory_a.data() + 200, 300, mr_a).immediate(77)),
              0);
    EXPECT_EQ(send(qp_a, ah_a, qp_b->qpn(),
                   Send(IBV_WR_SEND, 3, memory_a.data() + 600, 30, mr_a,
                        IBV_SEND_INLINE | IBV_SEND_SIGNALED)),
              0);
  }
};

Images make_images() {
  Parties parties;
  parties.make();
  Images images;
  int count = 0;
  EXPECT_EQ(parties.pair.a.context->describe(&images.a, &count), 0);
  EXPECT_EQ(count, 1 + 1 + 1 + 1 + 1 + 1);  // context, PD, MR, CQ, QP, AH
  images.b = describe(*parties.pair.b.context, &count);
  return images;
}

// What arrived at b of the two datagrams that waited, behind the one that came before the image.
void expect_arrived(const std::vector<ibv_wc>& completions, const std::byte* memory) {
  const auto content = pattern(kImageBytes, 7);
  ASSERT_EQ(completions.size(), 3u);
  const std::size_t lengths[] = {101, 300, 30}, offsets[] = {0, 200, 600};
  for (std::size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const ibv_wc& wc = completions[i];
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.byte_len, kGrh + lengths[i]);
    EXPECT_EQ(wc.src_qp, completions[0].src_qp);
    EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
    EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_IMM, i == 1 ? unsigned{IBV_WC_WITH_IMM} : 0u);
    const std::byte* at = memory + kReceive + i * kReceiveBytes;
    expect_grh(at, 1, 2, lengths[i], i == 1);
    EXPECT_EQ(std::memcmp(at + kGrh, content.data() + offsets[i], lengths[i]), 0);
  }
  EXPECT_EQ(completions[1].imm_data, 77u);
}

// a comes back at another place, b where it was.
void go_on_from(const Images& images) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  const auto content = pattern(kImageBytes, 7);
  std::memcpy(memory_a.data(), content.data(), kImageBytes);
  SimPair pair;
  Restored a, b;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.a, 11));
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, pair.b, 2));
  ASSERT_EQ(restore(*pair.a.context, images.a, &a), 0);
  ASSERT_EQ(restore(*pair.b.context, images.b, &b), 0);
  ASSERT_EQ(a.ahs.size(), 1u);
  pair.run();
  EXPECT_EQ(pair.network.next_event_time(), port::kSimNever) << "silent before resume()";
  // The memory under the first receive was filled before the image was made.
  std::memset(memory_b.data(), 0, kImageBytes);
  pair.a.context->resume(false);
  pair.b.context->resume(false);
  pair.run(std::chrono::milliseconds(300));
  const auto sent = SimPair::drain(a.cq);
  ASSERT_EQ(sent.size(), 3u);
  for (const ibv_wc& wc : sent) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  auto received = SimPair::drain(b.cq);
  ASSERT_EQ(received.size(), 3u);
  received.erase(received.begin());
  EXPECT_EQ(received[0].byte_len, kGrh + 300);
  EXPECT_EQ(received[0].imm_data, 77u);
  EXPECT_EQ(received[1].byte_len, kGrh + 30);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::byte* at = memory_b.data() + kReceive + (i + 1) * kReceiveBytes;
    expect_grh(at, 1, 2, i == 0 ? 300 : 30, i == 0);
    EXPECT_EQ(std::memcmp(at + kGrh, content.data() + (i == 0 ? 200 : 600), i == 0 ? 300 : 30), 0);
  }
  // A restored handle sends what is posted now, and holds its PD.
  EXPECT_EQ(pair.a.context->destroy(a.pd), EBUSY);
  EXPECT_EQ(send(a.qps[0], a.ahs[0], b.qps[0]->qpn(),
                 Send(IBV_WR_SEND, 4, memory_a.data() + 900, 50, a.mr)),
            0);
  pair.run();
  received = SimPair::drain(b.cq);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].src_qp, a.qps[0]->qpn());
  EXPECT_EQ(pair.a.context->destroy(a.ahs[0]), 0);
}

TEST(ImageOfDatagrams, GoesOnWhereItWasDescribed) {
  go_on_from(make_images());
}

TEST(ImageOfDatagrams, GoldenFilesOfVersion1GoOn) {
  if (write_golden(make_images, "datagram_sender", "datagram_receiver")) {
    GTEST_SKIP() << "written";
  }
  go_on_from(read_golden("datagram_sender", "datagram_receiver"));
}

TEST(ImageOfDatagrams, SizesOfRecords) {
  const Images images = make_images();
  const auto sender = sizes_of_last_records(images.a), receiver = sizes_of_last_records(images.b);
  EXPECT_EQ(sender.at(ObjectType::kAh), 46u);
  constexpr std::size_t kEmpty = 216, kWqe = 25 + 30;
  EXPECT_EQ(sender.at(ObjectType::kQp), kEmpty + (kWqe + 16) + (kWqe + 30));
  EXPECT_EQ(receiver.at(ObjectType::kQp), kEmpty + 3 * (9 + 16));
}

TEST(ImageOfDatagrams, ChangedBytesDoNoHarm) {
  FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  SimPair pair;
  ASSERT_GT(change_bytes(pair, read_golden("datagram_sender", "datagram_receiver").a, 2000), 200u);
}

TEST(ImageOfDatagrams, AddressHandlesNeedTheirDomain) {
  SimPair pair;
  Node node;
  ASSERT_NO_FATAL_FAILURE(open_fresh(pair, node, 60));
  const auto image = read_golden("datagram_sender", "datagram_receiver").a;
  std::map<ObjectType, std::vector<std::byte>> records;
  for (std::span<const std::byte> rest = image; !rest.empty();) {
    const auto before = rest;
    device::Record record;
    ASSERT_TRUE(device::next_record(&rest, &record));
    const auto bytes = before.first(before.size() - rest.size());
    records.try_emplace(record.type, bytes.begin(), bytes.end());
  }
  device::Object* object = nullptr;
  const auto create = [&](ObjectType type) {
    return node.context->restore(type, device::RestoreCommand::kCreate, records[type], &object);
  };
  EXPECT_EQ(create(ObjectType::kAh), ENOENT);
  ASSERT_EQ(create(ObjectType::kContext), 0);
  EXPECT_EQ(create(ObjectType::kAh), ENOENT);
  ASSERT_EQ(create(ObjectType::kPd), 0);
  ASSERT_EQ(create(ObjectType::kAh), 0);
  EXPECT_EQ(create(ObjectType::kAh), EEXIST);
}

// Both sides move, with their stand-ins. The handles that they had before, and one that was made of
// a received header, reach the new places.
TEST(ImageOfDatagrams, HandlesReachWhoHasMoved) {
  Parties parties;
  parties.make();
  SimPair& pair = parties.pair;
  const ibv_gid gid_a = pair.a.gid();
  const std::uint32_t qpn_a = parties.qp_a->qpn(), qpn_b = parties.qp_b->qpn();
  const std::uint32_t handle_b = create_ah(*pair.b.context, pair.b.pd, gid_a)->handle();

  std::vector<std::unique_ptr<SimStandIn>> stand_ins;
  std::array<Restored, 2> restored;
  std::array<Node, 2> moved;
  std::array<Node*, 2> nodes{&pair.a, &pair.b};
  for (unsigned i = 0; i < 2; ++i) {
    Node& from = *nodes[i];
    std::uint32_t unacked = 0;
    if (i == 1) {
      ASSERT_EQ(from.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    }
    std::vector<rnic::Slot> slots;
    ASSERT_EQ(from.context->detach(&slots), 0);
    ASSERT_EQ(slots.size(), 1u);
    stand_ins.push_back(std::make_unique<SimStandIn>(*pair.ports, slots[0], pair.network.now()));
    ASSERT_TRUE(stand_ins.back()->well_formed());
    std::vector<std::byte> image;
    int count = 0;
    ASSERT_EQ(from.context->describe(&image, &count), 0);
    ASSERT_NO_FATAL_FAILURE(open_fresh(pair, moved[i], 21 + i));
    ASSERT_EQ(restore(*moved[i].context, image, &restored[i]), 0);
  }
  for (unsigned i = 0; i < 2; ++i) {
    const Lane& lane = moved[i].context->engine().lanes()[0];
    stand_ins[i]->stand_in().committed(lane.port->local(), lane.slot, 1, pair.network.now());
    std::swap(nodes[i]->context, moved[i].context);
    moved[i].context.reset();
    nodes[i]->context->resume(false);
  }
  const auto run = [&] {
    for (int i = 0; i < 200; ++i) {
      pair.run(std::chrono::milliseconds(1));
      for (auto& stand_in : stand_ins) stand_in->run(pair.network.now());
    }
  };
  run();
  expect_arrived(SimPair::drain(restored[1].cq), parties.memory_b.data());
  EXPECT_GT(stand_ins[1]->stand_in().counters().moved_sent, 0u);

  // b answers through its handle, restored, and through one made of the header that it got.
  ASSERT_EQ(SimPair::drain(restored[0].cq).size(), 3u);
  for (std::uint64_t id = 50; id < 52; ++id) {
    EXPECT_EQ(
        post_receive(restored[0].qps[0], id, parties.memory_a.data() + 0x8000, 200, restored[0].mr),
        0);
  }
  ibv_gid from_header{};
  std::memcpy(from_header.raw + 10, "\xff\xff", 2);
  std::memcpy(from_header.raw + 12, parties.memory_b.data() + kReceive + 32, 4);
  EXPECT_EQ(std::memcmp(from_header.raw, gid_a.raw, 16), 0);
  device::Ah* made = create_ah(*pair.b.context, restored[1].pd, from_header);
  ASSERT_EQ(restored[1].ahs.size(), 1u);
  EXPECT_EQ(restored[1].ahs[0]->handle(), handle_b);
  std::uint64_t id = 60;
  for (const device::Ah* ah : {restored[1].ahs[0], made}) {
    EXPECT_EQ(send(restored[1].qps[0], ah, qpn_a,
                   Send(IBV_WR_SEND, id++, parties.memory_b.data(), 64, restored[1].mr)),
              0);
    run();
    const auto received = SimPair::drain(restored[0].cq);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(received[0].src_qp, qpn_b);
    expect_grh(parties.memory_a.data() + 0x8000, 2, 1, 64);
  }
}

}  // namespace
}  // namespace ferry::rnic::testing
