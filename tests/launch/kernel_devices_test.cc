#include "launch/kernel_devices.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "temporary.h"

// Which of the kernel's RDMA devices a program can use, in folders that the test makes.
namespace ferry::launch {
namespace {

using Names = std::vector<std::string>;

in6_addr address_of(const std::string& text) {
  in6_addr address{};
  EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &address), 1);
  return address;
}

struct KernelDevices : testing::Test {
  test::Folder folder;
  std::vector<in6_addr> addresses{address_of("fe80::1"), address_of("::ffff:10.0.0.1")};

  void write(const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(folder.path(name));
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  // A device as the kernel shows it, with one port and one GID behind an empty one.
  void plug(const std::string& number, const std::string& name,
            const std::string& gid = "0000:0000:0000:0000:0000:ffff:0a00:0001",
            const std::string& link = "Ethernet", const std::string& state = "4: ACTIVE") {
    write("dev/infiniband/uverbs" + number, "");
    write("sys/class/infiniband_verbs/uverbs" + number + "/ibdev", name);
    const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
    write(port + "state", state);
    write(port + "link_layer", link);
    write(port + "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
    write(port + "gids/1", gid);
  }
  Names usable() {
    return usable_kernel_devices({folder.path("sys"), folder.path("dev")}, addresses);
  }
};

TEST_F(KernelDevices, NoneIsThere) {
  EXPECT_EQ(usable(), Names());
}

TEST_F(KernelDevices, AreInTheKernelsOrder) {
  plug("10", "mlx5_1");
  plug("2", "mlx5_0", "fe80:0000:0000:0000:0000:0000:0000:0001");
  EXPECT_EQ(usable(), (Names{"mlx5_0", "mlx5_1"}));
}

TEST_F(KernelDevices, OneWithoutAnActivePortIsLeftOut) {
  plug("0", "mlx5_0", "0000:0000:0000:0000:0000:ffff:0a00:0001", "Ethernet", "1: DOWN");
  EXPECT_EQ(usable(), Names());
  write("sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE");
  write("sys/class/infiniband/mlx5_0/ports/2/link_layer", "InfiniBand");
  EXPECT_EQ(usable(), Names{"mlx5_0"});
}

TEST_F(KernelDevices, OneOfAnotherNetworkNamespaceIsLeftOut) {
  plug("0", "rxe0", "0000:0000:0000:0000:0000:ffff:0a00:0002");
  EXPECT_EQ(usable(), Names());
  addresses.push_back(address_of("::ffff:10.0.0.2"));
  EXPECT_EQ(usable(), Names{"rxe0"});
}

TEST_F(KernelDevices, InfiniBandHasNoAddressesOfANamespace) {
  plug("0", "mlx5_0", "fe80:0000:0000:0000:0002:c903:0000:1111", "InfiniBand");
  EXPECT_EQ(usable(), Names{"mlx5_0"});
}

TEST_F(KernelDevices, OneWithoutANodeIsLeftOut) {
  plug("0", "mlx5_0");
  std::filesystem::remove(folder.path("dev/infiniband/uverbs0"));
  EXPECT_EQ(usable(), Names());
}

TEST_F(KernelDevices, OneOfAnotherLinkIsLeftOut) {
  plug("0", "efa_0", "fe80:0000:0000:0000:0000:0000:0000:0001", "Unspecified");
  EXPECT_EQ(usable(), Names());
}

TEST(OwnAddresses, AreNotThoseOfTheLoopbackInterface) {
  for (const in6_addr& each : own_addresses()) {
    EXPECT_FALSE(IN6_IS_ADDR_LOOPBACK(&each));
    EXPECT_FALSE(IN6_IS_ADDR_V4MAPPED(&each) && each.s6_addr[12] == 127);
    EXPECT_FALSE(IN6_IS_ADDR_UNSPECIFIED(&each));
  }
}

TEST(Providers, AreAskedForDevices) {
  void* const verbs = ::dlopen(PLAYED_VERBS, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(verbs, nullptr) << ::dlerror();
  EXPECT_EQ(with_provider({"hns_0", "mlx5_0"}, verbs), Names{"mlx5_0"});
  EXPECT_EQ(with_provider({"hns_0"}, verbs), Names());
  EXPECT_EQ(with_provider({}, nullptr), Names());
  ::dlclose(verbs);
}

}  // namespace
}  // namespace ferry::launch
