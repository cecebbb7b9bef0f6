#include "verbs/kernel/device_name.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace ferry::verbs {
namespace {

// A folder as /sys/class/infiniband_verbs.
struct DeviceName : testing::Test {
  std::string sysfs = testing::TempDir() + "device_name_test";
  ibv_device device{};
  void SetUp() override {
    std::filesystem::create_directories(sysfs + "/uverbs0");
    std::strcpy(device.name, "rxe0");
    std::strcpy(device.dev_name, "uverbs0");
  }
  void TearDown() override { std::filesystem::remove_all(sysfs); }
};

TEST_F(DeviceName, IsWhatTheKernelSaysNow) {
  std::ofstream(sysfs + "/uverbs0/ibdev") << "rxe7\n";
  EXPECT_EQ(kernel_name_of(device, sysfs), "rxe7");
}

TEST_F(DeviceName, IsThatOfTheListWhereTheKernelSaysNothing) {
  EXPECT_EQ(kernel_name_of(device, sysfs), "rxe0");
  std::strcpy(device.dev_name, "uverbs1");
  EXPECT_EQ(kernel_name_of(device, sysfs), "rxe0");
}

}  // namespace
}  // namespace ferry::verbs
