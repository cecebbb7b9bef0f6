#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <cstring>

#include "../port/network_namespace.h"
#include "rig.h"
#include "verbs/neighbour.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

constexpr std::uint32_t kOurs = 0xc0000201;    // 192.0.2.1, GID 0 of the fake
constexpr std::uint32_t kTheirs = 0xc6336402;  // 198.51.100.2

struct AddressHandles : FullRig {
  ibv_wc wc{};
  ibv_grh grh{};
  void SetUp() override {
    FullRig::SetUp();
    fake->gids.push_back({0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
    wc.wc_flags = IBV_WC_GRH;
    wc.sl = 2;
  }
  iphdr ipv4_header() {
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.tos = 0x2a;
    ip.ttl = 61;
    ip.protocol = IPPROTO_UDP;
    ip.saddr = htobe32(kTheirs);
    ip.daddr = htobe32(kOurs);
    std::uint32_t sum = 0;
    std::uint16_t halves[10];
    std::memcpy(halves, &ip, sizeof ip);
    for (auto half : halves) sum += half;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    ip.check = static_cast<std::uint16_t>(~sum);
    return ip;
  }
  void put(const iphdr& ip) { std::memcpy(reinterpret_cast<char*>(&grh) + 20, &ip, sizeof ip); }
  int init(ibv_ah_attr* out) {
    errno = 0;
    return ibv_init_ah_from_wc(context, 1, &wc, &grh, out);
  }
};

TEST_F(AddressHandles, TheAnswerToAnIpv4Datagram) {
  put(ipv4_header());
  ibv_ah_attr a;
  ASSERT_EQ(init(&a), 0);
  EXPECT_EQ(a.is_global, 1);
  EXPECT_EQ(a.port_num, 1);
  EXPECT_EQ(a.sl, 2);
  EXPECT_EQ(a.grh.sgid_index, 0);
  EXPECT_EQ(a.grh.hop_limit, 61);
  EXPECT_EQ(a.grh.traffic_class, 0x2a);
  const std::uint8_t expected[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 2};
  EXPECT_EQ(std::memcmp(a.grh.dgid.raw, expected, 16), 0);
  ibv_ah* ah = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
  ASSERT_NE(ah, nullptr);
  const auto* made = static_cast<device::fake::FakeAh*>(to_ah(ah)->device);
  EXPECT_EQ(std::memcmp(made->attributes.grh.dgid.raw, expected, 16), 0);
  EXPECT_EQ(ah->handle, made->handle());  // by which requests name it
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(AddressHandles, WhatStandsBeforeAnIpv4HeaderMayLookLikeIpv6) {
  grh.version_tclass_flow = htobe32(6u << 28);
  put(ipv4_header());
  ibv_ah_attr a;
  ASSERT_EQ(init(&a), 0);
  EXPECT_EQ(a.grh.dgid.raw[12], 198);
}

TEST_F(AddressHandles, TheAnswerToAnIpv6Datagram) {
  grh.version_tclass_flow = htobe32(6u << 28 | 0x2au << 20 | 0x12345);
  grh.next_hdr = IPPROTO_UDP;
  grh.hop_limit = 62;
  const std::uint8_t theirs[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  std::memcpy(grh.sgid.raw, theirs, 16);
  std::memcpy(grh.dgid.raw, fake->gids[1].data(), 16);
  ibv_ah_attr a;
  ASSERT_EQ(init(&a), 0);
  EXPECT_EQ(a.grh.sgid_index, 1);
  EXPECT_EQ(a.grh.hop_limit, 62);
  EXPECT_EQ(a.grh.traffic_class, 0x2a);
  EXPECT_EQ(a.grh.flow_label, 0x12345u);
  EXPECT_EQ(std::memcmp(a.grh.dgid.raw, theirs, 16), 0);
}

TEST_F(AddressHandles, AnEmptyEntryBeforeTheGidIsPassedOver) {
  grh.version_tclass_flow = htobe32(6u << 28);
  grh.next_hdr = IPPROTO_UDP;
  std::memcpy(grh.dgid.raw, fake->gids[1].data(), 16);
  log.fail_next("query_gid", ENODATA);
  ibv_ah_attr a;
  ASSERT_EQ(init(&a), 0);
  EXPECT_EQ(a.grh.sgid_index, 1);
}

TEST_F(AddressHandles, DatagramsThatCannotBeAnswered) {
  ibv_ah_attr a;
  iphdr ip = ipv4_header();
  ip.daddr = htobe32(0xe0000005);  // a group
  put(ip);
  EXPECT_EQ(init(&a), -1);
  EXPECT_EQ(errno, EINVAL);
  grh = {};  // neither IPv4 nor IPv6
  EXPECT_EQ(init(&a), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  grh.version_tclass_flow = htobe32(6u << 28);
  grh.next_hdr = 0x1b;  // RoCE v1
  EXPECT_EQ(init(&a), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  wc.wc_flags = 0;
  EXPECT_EQ(init(&a), 0);
  EXPECT_EQ(a.is_global, 0);  // which leads nowhere
  errno = 0;
  EXPECT_EQ(ibv_create_ah_from_wc(pd, &wc, &grh, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_init_ah_from_wc(nullptr, 1, &wc, &grh, &a), -1);
  EXPECT_EQ(ibv_init_ah_from_wc(context, 1, nullptr, &grh, &a), -1);
  EXPECT_EQ(ibv_create_ah_from_wc(nullptr, &wc, &grh, 1), nullptr);
}

TEST_F(AddressHandles, TheDevicesErrorBecomesErrno) {
  ibv_ah_attr a{};
  a.is_global = 1;
  a.port_num = 1;
  log.fail_next("create_ah", ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_create_ah(pd, &a), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

// --- MAC addresses, in a network of its own

struct Neighbours : AddressHandles {
  bool has_vlan = false;
  void SetUp() override {
    AddressHandles::SetUp();
    if (!port::in_own_network_namespace()) GTEST_SKIP() << "needs a network namespace";
    static const bool made =
        port::run_ip("link add near address 02:00:00:00:00:01 type veth peer name far") &&
        port::run_ip("address add 192.0.2.1/24 dev near") &&
        port::run_ip("address add 2001:db8::1/64 dev near nodad") &&
        port::run_ip("link set near up") && port::run_ip("link set far up") &&
        port::run_ip("neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 dev near") &&
        port::run_ip("neighbour add 2001:db8::9 lladdr 02:00:00:00:00:19 dev near") &&
        port::run_ip("route add 198.51.100.0/24 via 192.0.2.9");
    static const bool tagged_made =  // not every kernel has VLANs
        made && port::run_ip("link add link near name tagged type vlan id 7") &&
        port::run_ip("link set tagged up") &&
        port::run_ip("address add 203.0.113.1/24 dev tagged") &&
        port::run_ip("neighbour add 203.0.113.9 lladdr 02:00:00:00:00:29 dev tagged");
    has_vlan = tagged_made;
    ASSERT_TRUE(made);
  }
  // The last byte of the MAC address, or the negative errno value.
  int last_byte(const ibv_gid& to, std::uint16_t* vid = nullptr) {
    ibv_ah_attr attributes{};
    attributes.port_num = 1;
    attributes.grh.dgid = to;
    std::uint8_t mac[6];
    const int error = ibv_resolve_eth_l2_from_gid(context, &attributes, mac, vid);
    return error ? error : mac[5];
  }
  static ibv_gid ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
  }
};

TEST_F(Neighbours, AreFound) {
  std::uint16_t vid = 0;
  EXPECT_EQ(last_byte(ipv4(192, 0, 2, 9), &vid), 0x09);
  EXPECT_EQ(vid, 0xffff);
  EXPECT_EQ(last_byte({{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}}), 0x19);
  EXPECT_EQ(last_byte(ipv4(198, 51, 100, 2)), 0x09);  // behind a router
  EXPECT_EQ(last_byte(ipv4(192, 0, 2, 1)), 0x01);     // this host
  EXPECT_EQ(last_byte(ipv4(224, 1, 2, 3)), 3);        // a group
  EXPECT_EQ(last_byte({{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4}}), 4);
  if (has_vlan) {
    EXPECT_EQ(last_byte(ipv4(203, 0, 113, 9), &vid), 0x29);
    EXPECT_EQ(vid, 7);
  }
  EXPECT_EQ(last_byte(ipv4(10, 9, 8, 7)), -ENETUNREACH);
}

TEST_F(Neighbours, NobodyAnswers) {
  std::uint8_t mac[6];
  std::uint16_t vid;
  EXPECT_EQ(resolve_mac(ipv4(192, 0, 2, 77), std::chrono::milliseconds(30), mac, &vid),
            EHOSTUNREACH);
}

TEST_F(AddressHandles, BadArgumentsOfResolution) {
  std::uint8_t mac[6];
  ibv_ah_attr attributes{};
  EXPECT_EQ(ibv_resolve_eth_l2_from_gid(nullptr, &attributes, mac, nullptr), -EINVAL);
  EXPECT_EQ(ibv_resolve_eth_l2_from_gid(context, nullptr, mac, nullptr), -EINVAL);
  attributes.port_num = 2;
  EXPECT_EQ(ibv_resolve_eth_l2_from_gid(context, &attributes, mac, nullptr), -EINVAL);
}

}  // namespace
}  // namespace ferry::verbs
