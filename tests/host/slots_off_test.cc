#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "host/guest/slots.h"
#include "temporary.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using test::failure_of;

// A machine with eth0 on the PCI device 0000:01:00.0 and eth1 on 0000:02:00.0, each behind a root port.
class SlotsOffTest : public ::testing::Test {
 protected:
  SlotsOffTest() {
    for (const char* number : {"1", "2"}) {
      const std::string bus =
          std::string("devices/pci0000:00/0000:00:0") + number + ".0/0000:0" + number + ":00.0";
      const std::string net = std::string("class/net/eth") + (number[0] == '1' ? "0" : "1");
      fs::create_directories(sysfs_.path(bus + "/virtio" + number));
      fs::create_directories(sysfs_.path(net));
      fs::create_symlink(sysfs_.path(bus + "/virtio" + number), sysfs_.path(net + "/device"));
    }
    fs::create_directories(sysfs_.path("class/net/dummy0"));
    fs::create_directories(sysfs_.path("bus/pci/slots/0-2"));
    sysfs_.write("bus/pci/slots/0-2/address", "0000:02:00\n");
    sysfs_.write("bus/pci/slots/0-2/power", "1");
    // The root port of eth0 is in a slot itself.
    fs::create_directories(sysfs_.path("bus/pci/slots/9"));
    sysfs_.write("bus/pci/slots/9/address", "0000:00:01\n");
    sysfs_.write("bus/pci/slots/9/power", "1");
  }

  const test::Folder sysfs_;
};

TEST_F(SlotsOffTest, TheSlotOfANicIsSwitchedOff) {
  switch_off_slot("eth1", sysfs_.path());
  EXPECT_EQ(sysfs_.read("bus/pci/slots/0-2/power"), "0");
}

TEST_F(SlotsOffTest, ANicMayBeInNoSlot) {
  EXPECT_EQ(failure_of([&] { switch_off_slot("eth0", sysfs_.path()); }),
            "the NIC eth0 is in no slot that can be switched off; plug it into a pcie-root-port");
  EXPECT_EQ(sysfs_.read("bus/pci/slots/0-2/power"), "1");
  EXPECT_EQ(sysfs_.read("bus/pci/slots/9/power"), "1");
}

TEST_F(SlotsOffTest, AnInterfaceMayHaveNoDevice) {
  switch_off_slot("dummy0", sysfs_.path());
  switch_off_slot("none", sysfs_.path());
  EXPECT_EQ(sysfs_.read("bus/pci/slots/0-2/power"), "1");
}

TEST_F(SlotsOffTest, ASlotMayRefuse) {
  fs::remove(sysfs_.path("bus/pci/slots/0-2/power"));
  EXPECT_EQ(failure_of([&] { switch_off_slot("eth1", sysfs_.path()); }),
            "cannot switch off the slot 0-2 of the NIC eth1: No such file or directory");
}

}  // namespace
}  // namespace ferry::host
