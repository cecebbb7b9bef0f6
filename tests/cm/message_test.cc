#include "cm/message.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cm/service.h"

namespace ferry::cm {
namespace {

template <std::size_t N>
void number(Private<N>& data) {
  for (std::size_t i = 0; i < N; ++i) data[i] = static_cast<std::byte>(i + 1);
}

unsigned at(const Mad& mad, std::size_t offset) {
  return static_cast<unsigned>(mad[24 + offset]);
}

Req request() {
  Req m;
  m.local_id = 0x01020304;
  m.service_id = 0x1112131415161718;
  m.guid = 0x2122232425262728;
  m.qpn = 0x313233;
  m.responder_resources = 0x34;
  m.initiator_depth = 0x35;
  m.remote_timeout = 0x15;
  m.transport = Transport::kUc;
  m.flow_control = true;
  m.psn = 0x414243;
  m.local_timeout = 0x0A;
  m.retry_count = 5;
  m.pkey = 0x8001;
  m.mtu = 4;
  m.rnr_retry = 6;
  m.max_cm_retries = 9;
  m.srq = true;
  m.path.local = port::Address::from_ipv4(0x0A000001);
  m.path.remote = port::Address::from_ipv4(0x0A000002);
  m.path.flow_label = 0x51525;
  m.path.rate = 0x13;
  m.path.traffic_class = 0x61;
  m.path.hop_limit = 0x62;
  m.path.sl = 7;
  m.path.ack_timeout = 0x12;
  number(m.data);
  return m;
}

TEST(CmMessage, HeaderOfAMad) {
  const Mad mad = encode({0x0102030405060708, request()});
  EXPECT_EQ(mad[0], std::byte{1});
  EXPECT_EQ(mad[1], std::byte{7});
  EXPECT_EQ(mad[2], std::byte{2});
  EXPECT_EQ(mad[3], std::byte{3});
  EXPECT_EQ(mad[8], std::byte{1});
  EXPECT_EQ(mad[15], std::byte{8});
  EXPECT_EQ(mad[17], std::byte{0x10});
}

// Offsets of table 106.
TEST(CmMessage, FieldsOfARequest) {
  const Mad mad = encode({1, request()});
  EXPECT_EQ(at(mad, 0), 0x01u);
  EXPECT_EQ(at(mad, 8), 0x11u);
  EXPECT_EQ(at(mad, 16), 0x21u);
  EXPECT_EQ(at(mad, 32), 0x31u);
  EXPECT_EQ(at(mad, 35), 0x34u);
  EXPECT_EQ(at(mad, 39), 0x35u);
  EXPECT_EQ(at(mad, 43), 0x15u << 3 | 1u << 1 | 1u);
  EXPECT_EQ(at(mad, 44), 0x41u);
  EXPECT_EQ(at(mad, 47), 0x0Au << 3 | 5u);
  EXPECT_EQ(at(mad, 48), 0x80u);
  EXPECT_EQ(at(mad, 50), 4u << 4 | 6u);
  EXPECT_EQ(at(mad, 51), 9u << 4 | 1u << 3);
  EXPECT_EQ(at(mad, 52), 0xFFu);
  EXPECT_EQ(at(mad, 71), 1u);
  EXPECT_EQ(at(mad, 87), 2u);
  EXPECT_EQ(at(mad, 88), 0x51u);
  EXPECT_EQ(at(mad, 90), 0x50u);
  EXPECT_EQ(at(mad, 91), 0x13u);
  EXPECT_EQ(at(mad, 92), 0x61u);
  EXPECT_EQ(at(mad, 93), 0x62u);
  EXPECT_EQ(at(mad, 94), 7u << 4);
  EXPECT_EQ(at(mad, 95), 0x12u << 3);
  EXPECT_EQ(at(mad, 140), 1u);
  EXPECT_EQ(at(mad, 231), 92u);
}

TEST(CmMessage, XrcIsExtendedTransportOne) {
  Req m;
  m.transport = Transport::kXrc;
  const Mad mad = encode({1, m});
  EXPECT_EQ(at(mad, 43) >> 1 & 3, 3u);
  EXPECT_EQ(at(mad, 51) & 7, 1u);
  EXPECT_EQ(std::get<Req>(parse(mad)->body).transport, Transport::kXrc);
}

// What is read is what was written, for every message: its encoding again is the same.
template <typename T>
void expect_stable(const T& body) {
  const Mad mad = encode({99, body});
  const auto parsed = parse(mad);
  ASSERT_TRUE(parsed);
  ASSERT_TRUE(std::holds_alternative<T>(parsed->body));
  EXPECT_EQ(parsed->transaction_id, 99u);
  EXPECT_EQ(encode(*parsed), mad);
  // The private data fills the message to its end.
  EXPECT_EQ(static_cast<std::size_t>(mad.back()), std::get<T>(parsed->body).data.size() & 0xFF);
}

TEST(CmMessage, RoundTrips) {
  expect_stable(request());
  Mra mra{1, 2, Answered::kRep, 21, {}};
  number(mra.data);
  expect_stable(mra);
  Rej rej;
  rej.local_id = 1;
  rej.remote_id = 2;
  rej.message = Answered::kOther;
  rej.reason = Reason::kStaleConnection;
  rej.info_length = 8;
  number(rej.info);
  number(rej.data);
  expect_stable(rej);
  Rep rep;
  rep.local_id = 1;
  rep.remote_id = 2;
  rep.qpn = 0xABCDEF;
  rep.psn = 0x123456;
  rep.responder_resources = 200;
  rep.initiator_depth = 100;
  rep.ack_delay = 31;
  rep.flow_control = rep.srq = true;
  rep.rnr_retry = 7;
  rep.guid = 0x1122334455667788;
  number(rep.data);
  expect_stable(rep);
  Rtu rtu{1, 2, {}};
  number(rtu.data);
  expect_stable(rtu);
  Dreq dreq{1, 2, 0xABCDEF, {}};
  number(dreq.data);
  expect_stable(dreq);
  Drep drep{1, 2, {}};
  number(drep.data);
  expect_stable(drep);
  SidrReq sidr_req{1, 0x7FFF, 0x0102030405060708, {}};
  number(sidr_req.data);
  expect_stable(sidr_req);
  SidrRep sidr_rep{1, SidrStatus::kNoQp, 0xABCDEF, 0x0102030405060708, 0x01234567, {}};
  number(sidr_rep.data);
  expect_stable(sidr_rep);
}

TEST(CmMessage, OthersAreNotParsed) {
  const Mad good = encode({1, request()});
  ASSERT_TRUE(parse(good));
  for (const std::size_t offset : {0, 1, 2, 3, 17}) {
    Mad bad = good;
    bad[offset] = std::byte{0x7E};
    EXPECT_FALSE(parse(bad)) << offset;
  }
  EXPECT_FALSE(parse(std::span(good).first(255)));
  EXPECT_FALSE(parse({}));
}

TEST(IpHeader, OfIpv4) {
  std::array<std::byte, kIpHeaderSize> data{};
  data.fill(std::byte{0xEE});
  encode(
      IpHeader{0x1234, port::Address::from_ipv4(0x0A000001), port::Address::from_ipv4(0x0A000002)},
      data);
  EXPECT_EQ(data[1], std::byte{0x40});
  EXPECT_EQ(data[2], std::byte{0x12});
  EXPECT_TRUE(std::all_of(&data[4], &data[16], [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(data[16], std::byte{10});
  EXPECT_EQ(data[35], std::byte{2});
  const auto header = parse_ip_header(data);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->source_port, 0x1234);
  EXPECT_EQ(header->source, port::Address::from_ipv4(0x0A000001));
  EXPECT_EQ(header->destination, port::Address::from_ipv4(0x0A000002));
}

TEST(IpHeader, OfIpv6AndOthers) {
  std::array<std::byte, kIpHeaderSize> data{};
  port::Address a, b;
  a.bytes[0] = b.bytes[0] = std::byte{0xFD};
  a.bytes[15] = std::byte{1};
  b.bytes[15] = std::byte{2};
  encode(IpHeader{7, a, b}, data);
  EXPECT_EQ(data[1], std::byte{0x60});
  ASSERT_TRUE(parse_ip_header(data));
  EXPECT_EQ(parse_ip_header(data)->source, a);
  EXPECT_EQ(parse_ip_header(data)->destination, b);
  EXPECT_FALSE(parse_ip_header(std::span(data).first(kIpHeaderSize - 1)));
  data[1] = std::byte{0x50};
  EXPECT_FALSE(parse_ip_header(data));
  data[1] = std::byte{0x60};
  data[0] = std::byte{0x10};
  EXPECT_FALSE(parse_ip_header(data));
}

TEST(ServiceId, HoldsPortSpaceAndPort) {
  EXPECT_EQ(service_id(0x0106, 7174), 0x0000000001061C06u);
  EXPECT_EQ(port_of(0x0000000001061C06), 7174);
}

}  // namespace
}  // namespace ferry::cm
