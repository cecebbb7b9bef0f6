#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/failure.h"
#include "host/proc/device_trial.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/kernel_qps.h"
#include "port/address_text.h"
#include "temporary.h"

namespace ferry::host {
namespace {

struct KernelDevices : testing::Test {
  test::Folder folder;

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder.path("class/" + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
};

TEST_F(KernelDevices, AreThoseOfSys) {
  write("rxe1/ports/1/state", "1: DOWN");
  write("rxe0/ports/1/state", "4: ACTIVE");
  write("rxe0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe79:0001");
  write("rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a4f:0001");
  write("rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000");
  write("rxe0/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a4f:zzzz");
  const auto devices = kernel_devices(folder.path("class"));
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "rxe0");
  EXPECT_TRUE(devices[0].is_active);
  EXPECT_FALSE(devices[1].is_active);
  const auto gids = kernel_gids("rxe0", folder.path("class"));
  ASSERT_EQ(gids.size(), 2u);
  EXPECT_EQ(to_string(gids[1]), "10.79.0.1");
  EXPECT_TRUE(kernel_gids("rxe7", folder.path("class")).empty());
  EXPECT_TRUE(kernel_devices(folder.path("none")).empty());
}

TEST_F(KernelDevices, AreInDevUnderANumber) {
  write("uverbs0/ibdev", "rxe9");
  write("uverbs0/dev", "231:192");
  write("uverbs1/ibdev", "rxe0");
  write("uverbs1/dev", "231:193");
  write("uverbs2/ibdev", "odd0");
  write("uverbs2/dev", "231");
  const std::string sysfs = folder.path("class");
  ASSERT_TRUE(node_of("rxe0", sysfs));
  EXPECT_EQ(to_string(*node_of("rxe0", sysfs)), "uverbs1 (231:193)");
  EXPECT_FALSE(node_of("rxe7", sysfs));
  EXPECT_FALSE(node_of("odd0", sysfs));
  EXPECT_FALSE(node_of("rxe0", folder.path("none")));
  EXPECT_NO_THROW(need_node("rxe0", "uverbs1 (231:193)", sysfs));
  // Another number under the same name would be another device, or none.
  EXPECT_THROW(need_node("rxe0", "uverbs1 (231:192)", sysfs), Failure);
  EXPECT_THROW(need_node("rxe0", "uverbs0 (231:192)", sysfs), Failure);
  EXPECT_THROW(need_node("rxe7", "uverbs0 (231:192)", sysfs), Failure);
}

TEST_F(KernelDevices, AProgramGoesOnWithTheOneOfTheSameNameOrTheOnlyActiveOne) {
  EXPECT_EQ(choose_kernel_device({{"mlx5_0", true}, {"rxe0", false}}, "rxe0"), "rxe0");
  EXPECT_EQ(choose_kernel_device({{"mlx5_0", true}, {"mlx5_1", false}}, "rxe0"), "mlx5_0");
  EXPECT_THROW(choose_kernel_device({{"mlx5_0", true}, {"mlx5_1", true}}, "rxe0"), Failure);
  EXPECT_THROW(choose_kernel_device({{"mlx5_0", false}}, "rxe0"), Failure);
  EXPECT_NO_THROW(need_kernel_device({{"mlx5_0", false}, {"rxe0", true}}, "mlx5_0"));
  EXPECT_THROW(need_kernel_device({{"mlx5_0", true}}, "mlx5_1"), Failure);
}

// The attributes of an entry of the kernel's answer.
TEST(DeviceTrial, OfADeviceThatNobodyKnows) {
  try {
    try_device("nothing0", "pds 1\n");
    FAIL() << "there is such a device";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(),
                 "nothing0 has not what the program needs: no provider of libibverbs knows it");
  }
  try {
    try_device("nothing0", "pds many\n");
    FAIL() << "these are no needs";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(),
                 "nothing0 has not what the program needs: its needs are malformed");
  }
}

struct Entry {
  std::vector<std::byte> bytes;
  Entry& add(std::uint16_t type, std::uint32_t value) {
    const nlattr head{NLA_HDRLEN + sizeof value, type};
    const std::size_t at = bytes.size();
    bytes.resize(at + NLA_HDRLEN + sizeof value);
    std::memcpy(&bytes[at], &head, sizeof head);
    std::memcpy(&bytes[at + NLA_HDRLEN], &value, sizeof value);
    return *this;
  }
};

TEST(KernelQps, AnEntryOfTheKernelsAnswer) {
  Entry entry;
  entry.add(RDMA_NLDEV_ATTR_RES_LQPN, 17)
      .add(RDMA_NLDEV_ATTR_RES_RQPN, 18)
      .add(RDMA_NLDEV_ATTR_RES_PID, 4711);
  const auto qp = parse_kernel_qp(entry.bytes);
  ASSERT_TRUE(qp);
  EXPECT_EQ(qp->qpn, 17u);
  EXPECT_EQ(qp->peer_qpn, 18u);
  EXPECT_EQ(qp->thread, 4711);
  // Whatever is cut off: no byte behind it is read.
  constexpr std::size_t kOne = NLA_HDRLEN + sizeof(std::uint32_t);
  for (std::size_t length = 0; length < entry.bytes.size(); ++length) {
    const std::vector<std::byte> part(entry.bytes.begin(),
                                      entry.bytes.begin() + static_cast<std::ptrdiff_t>(length));
    const auto cut = parse_kernel_qp(part);
    ASSERT_EQ(cut.has_value(), length >= kOne) << length;
    if (cut) {
      EXPECT_EQ(cut->peer_qpn, length >= 2 * kOne ? 18u : 0u);
      EXPECT_EQ(cut->thread, 0) << length;
    }
  }
}

TEST(KernelQps, OneWhoseThreadHasEndedHasAPd) {
  const auto qp = parse_kernel_qp(
      Entry().add(RDMA_NLDEV_ATTR_RES_LQPN, 17).add(RDMA_NLDEV_ATTR_RES_PDN, 3).bytes);
  ASSERT_TRUE(qp);
  EXPECT_EQ(qp->thread, 0);
  EXPECT_EQ(qp->pd, 3u);
}

TEST(KernelQps, TheKernelsOwnAreNone) {
  EXPECT_FALSE(parse_kernel_qp(Entry()
                                   .add(RDMA_NLDEV_ATTR_RES_LQPN, 1)
                                   .add(RDMA_NLDEV_ATTR_RES_KERN_NAME, 0x65726f63)
                                   .bytes));
}

TEST(KernelQps, OfAProcessWithoutAnyAreNone) {
  EXPECT_TRUE(kernel_qps({::getpid()}).empty());
}

}  // namespace
}  // namespace ferry::host
