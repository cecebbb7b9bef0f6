#include "device/record_heads.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace ferry::device {
namespace {

// The head in its bytes, followed by state of a device.
template <typename Head>
std::vector<std::byte> body_of(const Head& head) {
  std::vector<std::byte> body;
  wire::ByteWriter writer(&body);
  encode(head, writer);
  writer.put(std::uint8_t{0x77});
  return body;
}

// Reads back what encode() wrote, leaves the state of the device, and refuses what is shorter.
template <typename Head>
Head read_back(const Head& head) {
  const auto body = body_of(head);
  for (std::size_t length = 0; length + 1 < body.size(); ++length) {
    wire::ByteReader cut{std::span<const std::byte>(body).first(length)};
    Head out;
    EXPECT_FALSE(parse(cut, &out)) << length;
  }
  wire::ByteReader in(body);
  Head out;
  EXPECT_TRUE(parse(in, &out));
  EXPECT_EQ(in.remaining(), 1u);
  return out;
}

TEST(RecordHeads, OfAContext) {
  ContextHead head{7, 0x0123456789abcdef, 1024, std::vector<ibv_gid>(3)};
  head.gids[2].raw[15] = 9;
  const ContextHead out = read_back(head);
  EXPECT_EQ(out.next_handle, 7u);
  EXPECT_EQ(out.guid, head.guid);
  EXPECT_EQ(out.max_mtu, 1024u);
  ASSERT_EQ(out.gids.size(), 3u);
  EXPECT_EQ(out.gids[2].raw[15], 9);
}

TEST(RecordHeads, OfMemory) {
  const MrHead mr =
      read_back(MrHead{1, 0x10203040, 0x1000, 0x2000, 0x3000, IBV_ACCESS_LOCAL_WRITE});
  EXPECT_EQ(mr.key, 0x10203040u);
  EXPECT_EQ(mr.length, 0x2000u);
  EXPECT_EQ(version_of(mr), 1);
  EXPECT_EQ(version_of(read_back(MrHead{1, 2, 0, 0, 0, kNullRegion})), 2);
  const MwHead mw = read_back(MwHead{1, 2, 3, IBV_MW_TYPE_2, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(mw.region, 4u);
  EXPECT_EQ(mw.access, 9u);
}

TEST(RecordHeads, OfQueues) {
  const CqHead cq = read_back(CqHead{64, 2, true, false, true});
  EXPECT_EQ(cq.capacity, 64u);
  EXPECT_EQ(cq.armed, 2);
  EXPECT_TRUE(cq.overflowed && !cq.timestamps && cq.ignore_overrun);
  const SrqHead srq = read_back(SrqHead{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(srq.number, 4u);
  QpHead qp{1, 2, 3, 4, 5, 0x123456, 0x654321, {1, 2, 3, 4, 5}, IBV_QPT_UD, true, true};
  const QpHead out = read_back(qp);
  EXPECT_EQ(out.virtual_qpn, 0x123456u);
  EXPECT_EQ(out.wire_qpn, 0x654321u);
  EXPECT_EQ(out.cap.max_inline_data, 5u);
  EXPECT_EQ(version_of(out), 2);
}

TEST(RecordHeads, OfAddresses) {
  AhHead ah{1, {}};
  ah.attributes.grh.flow_label = 0x12345;
  ah.attributes.port_num = 1;
  EXPECT_EQ(read_back(ah).attributes.grh.flow_label, 0x12345u);
  ibv_qp_attr attributes{};
  attributes.dest_qp_num = 0x42;
  attributes.path_mtu = IBV_MTU_2048;
  attributes.ah_attr = ah.attributes;
  const ibv_qp_attr out = read_back(attributes);
  EXPECT_EQ(out.dest_qp_num, 0x42u);
  EXPECT_EQ(out.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(out.ah_attr.port_num, 1);
}

TEST(RecordHeads, WhatNoDeviceHasIsRefused) {
  const auto refused = [](const auto& head) {
    const auto body = body_of(head);
    wire::ByteReader in(body);
    auto out = head;
    return !parse(in, &out);
  };
  EXPECT_TRUE(refused(ContextHead{1, 1, 1024, {}}));
  EXPECT_TRUE(refused(ContextHead{1, 1, 1000, std::vector<ibv_gid>(1)}));
  EXPECT_TRUE(refused(MrHead{1, 2, 3, 0, 0, kNullRegion}));
  EXPECT_TRUE(refused(MwHead{1, 2, 2, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(refused(AhHead{}));
  EXPECT_TRUE(refused(CqHead{0, 0, false, false, false}));
  EXPECT_TRUE(refused(CqHead{1, 3, false, false, false}));
  EXPECT_TRUE(refused(SrqHead{1, 2, 0, 0, 1, 1}));
  QpHead qp;
  qp.virtual_qpn = 0x1000000;
  EXPECT_TRUE(refused(qp));
}

}  // namespace
}  // namespace ferry::device
