#include "host/move/source/kernel/wanted_devices.h"

#include <gtest/gtest.h>

#include "temporary.h"

namespace ferry::host {
namespace {

using Devices = std::map<std::string, std::string>;
using test::failure_of;

const std::set<std::string> kOne = {"rxe0"}, kTwo = {"mlx5_0", "mlx5_1"};

TEST(WantedDevices, NamesTheDeviceOfEach) {
  EXPECT_EQ(wanted_devices("p", {}, kTwo), Devices());
  EXPECT_EQ(wanted_devices("p", {}, {}), Devices());
  EXPECT_EQ(wanted_devices("p", {"rxe7"}, kOne), Devices({{"rxe0", "rxe7"}}));
  EXPECT_EQ(wanted_devices("p", {"mlx5_1=mlx5_0"}, kTwo), Devices({{"mlx5_1", "mlx5_0"}}));
  EXPECT_EQ(wanted_devices("p", {"mlx5_1=rxe0", "mlx5_0=rxe0"}, kTwo),
            Devices({{"mlx5_0", "rxe0"}, {"mlx5_1", "rxe0"}}));
}

TEST(WantedDevices, RefusesWhatIsUnclear) {
  const auto refusal = [](const std::vector<std::string>& wanted,
                          const std::set<std::string>& devices) {
    return failure_of([&] { wanted_devices("p", wanted, devices); });
  };
  EXPECT_EQ(refusal({"rxe7"}, {}),
            "'p' uses no RDMA device of the kernel; move it without --to-device rxe7");
  EXPECT_EQ(refusal({"rxe7"}, kTwo),
            "'p' uses mlx5_0 and mlx5_1; say which is to become rxe7: --to-device mlx5_0=rxe7");
  EXPECT_EQ(refusal({"rxe1=rxe7"}, kOne), "--to-device rxe1=rxe7: 'p' uses rxe0");
  EXPECT_EQ(refusal({"rxe7", "rxe0=rxe8"}, kOne),
            "--to-device rxe0=rxe8: rxe0 is to become rxe7 already");
  for (const char* const entry : {"", "=rxe7", "rxe0=", "="}) {
    EXPECT_EQ(refusal({entry}, kOne),
              "--to-device " + std::string(entry) + ": not NAME or OLD=NEW");
  }
}

TEST(WantedDevices, AreOfTheKernelForRdmaCm) {
  need_devices_of_kernel("p", {{"rxe0", "rxe7"}, {"rxe1", ""}});
  EXPECT_EQ(failure_of([] {
              need_devices_of_kernel("p", {{"rxe0", "ferry0"}});
            }),
            "'p' uses rdma_cm of the kernel, which does not know ferry0, Ferry's own RNIC; move it "
            "to a device of the kernel");
}

}  // namespace
}  // namespace ferry::host
