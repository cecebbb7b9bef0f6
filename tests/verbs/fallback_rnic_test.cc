#include "verbs/fallback_rnic.h"

#include <gtest/gtest.h>

#include "device/fake.h"

namespace ferry::verbs {
namespace {

// A device of the kernel, of which FallbackRnic knows nothing but this.
struct KernelRnic final : device::Rnic {
  const std::string& name() const override { return first; }
  std::string name_here() const override { return here; }
  const std::string& netdev() const override { return netdev_; }
  std::uint64_t guid() const override { return 9; }
  int index() const override { return 3; }
  void follow(const std::string& name) override { here = name; }
  std::unique_ptr<device::Context> open(device::EventSink& /*sink*/, int* error) override {
    ++opened;
    *error = EIO;
    return nullptr;
  }
  const std::string first = "rxe0", netdev_ = "eth0";
  std::string here = "rxe0";
  int opened = 0;
};

struct NoEvents final : device::EventSink {
  void completion(device::Cq&) override {}
  void asynchronous(ibv_event_type, device::Object*) override {}
};

struct Fallback : testing::Test {
  std::shared_ptr<device::fake::Log> log = std::make_shared<device::fake::Log>();
  KernelRnic* kernel = new KernelRnic;
  int own = 1;
  FallbackRnic rnic{std::unique_ptr<device::Rnic>(kernel),
                    [this](const std::string& name) -> std::unique_ptr<device::MovableRnic> {
                      if (name != "ferry0" && (own < 2 || name != "ferry1")) return nullptr;
                      return std::make_unique<device::fake::FakeRnic>(log, name, "eth9", 7);
                    }};
  NoEvents events;

  // True: one of Ferry's own devices was opened.
  bool opens_own() {
    const int before = kernel->opened;
    int error = 0;
    const bool opened = rnic.open(events, &error) != nullptr;
    EXPECT_EQ(kernel->opened, before + (opened ? 0 : 1));
    return opened;
  }
};

TEST_F(Fallback, OpensTheDeviceThatTheProgramHasNow) {
  EXPECT_FALSE(opens_own());
  EXPECT_EQ(rnic.name_here(), "rxe0");
  rnic.follow("ferry0");
  EXPECT_TRUE(opens_own());
  EXPECT_EQ(rnic.name_here(), "ferry0");
  rnic.follow("mlx5_0");
  EXPECT_FALSE(opens_own());
  EXPECT_EQ(rnic.name_here(), "mlx5_0");
}

TEST_F(Fallback, SaysOfItselfWhatItHasSaidAtFirst) {
  rnic.follow("ferry0");
  EXPECT_EQ(rnic.name(), "rxe0");
  EXPECT_EQ(rnic.netdev(), "eth0");
  EXPECT_EQ(rnic.guid(), 9u);
  EXPECT_EQ(rnic.index(), 3);
}

TEST_F(Fallback, AnOwnDeviceThatIsNotThereCannotBeOpened) {
  rnic.follow("ferry1");
  int error = 0;
  EXPECT_EQ(rnic.open(events, &error), nullptr);
  EXPECT_EQ(error, ENODEV);
  EXPECT_EQ(kernel->opened, 0);
  own = 2;
  rnic.follow("ferry1");
  EXPECT_TRUE(opens_own());
}

TEST_F(Fallback, NamesThatOnlyResembleFerrysAreTheKernels) {
  for (const char* const name : {"ferry", "ferry0x", "ferryboat0", "xferry0"}) {
    rnic.follow(name);
    EXPECT_FALSE(opens_own()) << name;
  }
}

}  // namespace
}  // namespace ferry::verbs
