#include "virtual/messages/needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "device/fake.h"

// What a program asks of a device at a destination: as text, and tried out with a device.
namespace ferry::virt {
namespace {

using device::fake::FakeContext;
using device::fake::FakeRnic;
using device::fake::Log;

constexpr char kText[] =
    "pds 1\n"
    "mrs 3\n"
    "cqs 100 2\n"
    "srqs 512 1 1\n"
    "qps 2 0 16 16 1 1 64 2\n"
    "qps 2 1 16 0 1 0 0 1\n"
    "gid 1 2 00000000000000000000ffff0a4f0001\n"
    "mtu 3\n"
    "reads 4\n"
    "served_reads 1\n"
    "atomics 1\n";

TEST(Needs, AreTheSameAsText) {
  Needs needs;
  ASSERT_TRUE(parse(kText, &needs));
  EXPECT_EQ(needs.qps.size(), 2u);
  EXPECT_EQ(needs.cqs.at(100), 2u);
  ASSERT_EQ(needs.gids.size(), 1u);
  EXPECT_EQ(needs.gids[0].gid.raw[15], 1);
  EXPECT_EQ(encode(needs), kText);
}

TEST(Needs, MemoryWindows) {
  const std::string text = "pds 0\nmrs 0\nmws 1 2\nmws 2 5\n";
  Needs needs;
  ASSERT_TRUE(parse(text, &needs));
  EXPECT_EQ(needs.mws.at(IBV_MW_TYPE_1), 2u);
  EXPECT_EQ(needs.mws.at(IBV_MW_TYPE_2), 5u);
  EXPECT_EQ(encode(needs).substr(0, text.size()), text);
}

TEST(Needs, Xrc) {
  const std::string text =
      "pds 1\nmrs 0\nxrcds 2\ncqs 8 1\nxrc_srqs 64 1 3\nqps 9 0 8 0 1 0 0 1\nqps 10 0 0 0 0 0 0 "
      "2\n";
  Needs needs;
  ASSERT_TRUE(parse(text, &needs));
  EXPECT_EQ(needs.xrcds, 2u);
  EXPECT_EQ(needs.srqs.at({64, 1, true}), 3u);
  EXPECT_EQ(encode(needs).substr(0, text.size()), text);
}

TEST(Needs, OfSeveralContextsAreAdded) {
  Needs needs;
  ASSERT_TRUE(parse(std::string(kText) + kText + "mtu 5\nreads 2\natomics 0\n", &needs));
  EXPECT_EQ(needs.mrs, 6u);
  EXPECT_EQ(needs.cqs.at(100), 4u);
  EXPECT_EQ(needs.gids.size(), 1u) << "of one kind";
  EXPECT_EQ(needs.mtu, IBV_MTU_4096);
  EXPECT_EQ(needs.reads, 4u);
  EXPECT_TRUE(needs.atomics);
}

struct MalformedNeeds : ::testing::TestWithParam<const char*> {};
TEST_P(MalformedNeeds, AreRefused) {
  Needs needs;
  EXPECT_FALSE(parse(GetParam(), &needs));
}
INSTANTIATE_TEST_SUITE_P(
    All, MalformedNeeds,
    ::testing::Values("pds", "pds -1", "pds 1 2", "pds x", "pds 0x1", "pds 99999999999999999999",
                      "pds 16777217", "pds 16777216\npds 1", "mws 1", "mws 0 1", "mws 3 1",
                      "mws 1 1 1", "cqs 1", "cqs 1 2 3", "srqs 1 1", "qps 2 0 16 16 1 1 64",
                      "qps 2 2 16 16 1 1 64 1", "qps 8 0 16 16 1 1 64 1", "xrc_srqs 1 1", "xrcds",
                      "qps 2 0 16 16 1 1 64 1 1", "gid 1 2 0000", "gid 256 2 0000", "mtu 0",
                      "mtu 6", "gid 1 3 00000000000000000000ffff0a4f0001",
                      "gid 1 2 00000000000000000000ffff0a4f000g", "windows 1", "cq_features 8",
                      "access", "null_mrs", "\n"));

struct Trial : ::testing::Test, device::EventSink {
  std::shared_ptr<Log> log = std::make_shared<Log>();
  FakeRnic rnic{log, "fake0", "eth9", 1};
  std::unique_ptr<device::Context> context;
  FakeContext* fake = nullptr;
  Needs needs;

  void completion(device::Cq&) override {}
  void asynchronous(ibv_event_type, device::Object*) override {}
  void SetUp() override {
    int error = 0;
    context = rnic.open(*this, &error);
    fake = rnic.last_opened();
    ibv_device_attr& has = fake->device_attributes.orig_attr;
    has.phys_port_cnt = fake->device_attributes.phys_port_cnt_ex = 1;
    has.max_mr = 10;
    has.max_qp_init_rd_atom = 4;
    has.max_qp_rd_atom = 1;
    has.atomic_cap = IBV_ATOMIC_HCA;
    fake->port_attributes.state = IBV_PORT_ACTIVE;
    fake->port_attributes.active_mtu = IBV_MTU_1024;
    fake->port_attributes.gid_tbl_len = 1;
    fake->gids = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 79, 0, 3}};
    ASSERT_TRUE(parse(kText, &needs));
  }
  std::size_t count(const std::string& function) const {
    const auto calls = log->calls();
    return static_cast<std::size_t>(std::count_if(
        calls.begin(), calls.end(), [&](const auto& call) { return call.function == function; }));
  }
};

TEST_F(Trial, MakesEverythingAndDestroysIt) {
  EXPECT_EQ(try_out(needs, *context), "");
  EXPECT_EQ(count("alloc_pd"), 1u);
  EXPECT_EQ(count("reg_mr"), 3u);
  EXPECT_EQ(count("create_cq"), 2u);
  EXPECT_EQ(count("create_srq"), 1u);
  EXPECT_EQ(count("create_qp"), 3u);
  EXPECT_EQ(count("destroy"), 10u);
}

TEST_F(Trial, WhatTheDeviceRefusesIsNamed) {
  log->fail_next("create_qp", ENOMEM);
  EXPECT_EQ(try_out(needs, *context), "0 of 2 QPs of 16 send requests: Cannot allocate memory");
  EXPECT_EQ(count("destroy"), 7u) << "what was made";
  log->fail_next("create_srq", EOPNOTSUPP);
  EXPECT_EQ(try_out(needs, *context), "0 of 1 SRQs of 512 requests: Operation not supported");
  needs.mws[IBV_MW_TYPE_2] = 3;
  log->fail_next("alloc_mw", EOPNOTSUPP);
  EXPECT_EQ(try_out(needs, *context), "0 of 3 MWs of type 2: Operation not supported");
  EXPECT_EQ(try_out(needs, *context), "");
  needs.mrs = 11;
  EXPECT_EQ(try_out(needs, *context), "it has not as many MRs");
}

TEST_F(Trial, KindsThatSomeDevicesRefuse) {
  needs.accesses = {IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE};
  needs.null_mrs = true;
  needs.cq_features = {Needs::kTimestamps};
  Needs read;
  ASSERT_TRUE(parse(encode(needs), &read));
  EXPECT_EQ(encode(read), encode(needs));
  EXPECT_EQ(try_out(read, *context), "");
  EXPECT_EQ(count("reg_mr"), 4u);
  EXPECT_EQ(count("create_cq"), 3u);
  log->fail_next("alloc_null_mr", EOPNOTSUPP);
  EXPECT_EQ(try_out(read, *context), "0 of 1 MRs without memory: Operation not supported");
}

TEST_F(Trial, MakesTheObjectsOfXrc) {
  const std::string text = "xrcds 1\nxrc_srqs 600 1 1\nqps 9 0 8 0 1 0 0 1\nqps 10 0 0 0 0 0 0 1\n";
  ASSERT_TRUE(parse(text, &needs));
  EXPECT_EQ(try_out(needs, *context), "");
  EXPECT_EQ(count("open_xrcd"), 1u);
  EXPECT_EQ(count("create_srq"), 2u) << "the QPs with an SRQ get the other one";
  EXPECT_EQ(count("create_qp"), 5u);
  log->fail_next("open_xrcd", EOPNOTSUPP);
  EXPECT_EQ(try_out(needs, *context), "0 of 1 XRC domains: Operation not supported");
  needs.xrcds = 0;
  EXPECT_EQ(try_out(needs, *context), "XRC SRQs without their domain");
  needs.srqs.erase({600, 1, true});
  EXPECT_EQ(try_out(needs, *context), "QPs without their queues");
}

TEST_F(Trial, LimitsPortsAndGids) {
  needs.reads = 5;
  EXPECT_EQ(try_out(needs, *context), "its QPs have fewer READs and atomics under way");
  needs.reads = 4;
  needs.mtu = IBV_MTU_4096;
  EXPECT_EQ(try_out(needs, *context), "port 1 has an MTU of 1024 bytes, a QP one of 4096");
  needs.mtu = IBV_MTU_256;
  fake->device_attributes.orig_attr.atomic_cap = IBV_ATOMIC_NONE;
  EXPECT_EQ(try_out(needs, *context), "it has no atomics");
  needs.atomics = false;
  EXPECT_EQ(try_out(needs, *context), "");
  needs.gids[0].gid.raw[0] = 0xfd;
  EXPECT_EQ(try_out(needs, *context), "port 1 has no GID of RoCEv2 for global IPv6 addresses");
  needs.gids[0].gid.raw[0] = 0;
  fake->port_attributes.state = IBV_PORT_DOWN;
  EXPECT_EQ(try_out(needs, *context), "port 1 is down");
}

}  // namespace
}  // namespace ferry::virt
