#include "host/units/vm/qemu_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "base/failure.h"
#include "host/proc/process_tree.h"
#include "host/units/vm/machine_record.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using Words = std::vector<std::string>;

const std::string kNic = "virtio-net-pci,netdev=net1,id=nic1,bus=port1,mac=52:54:00:77:01:01";
const std::string kNetdev = "tap,id=net1,script=/etc/a,,b";

Words command() {
  return {"qemu",
          "-m",
          "512",
          "-drive",
          "file=/san/disk,,1,format=raw",
          "-netdev",
          kNetdev,
          "-device",
          kNic,
          "-kernel",
          "/boot/kernel",
          "-blockdev",
          "driver=file,filename=/san/two,node-name=d",
          "--netdev",
          "user,id=net0"};
}

TEST(QemuCommandTest, AMachineArrivesWithoutItsNics) {
  const QemuCommand qemu(command(), {"nic1"});
  ASSERT_EQ(qemu.nics().size(), 1u);
  EXPECT_EQ(qemu.nics()[0].mac, "52:54:00:77:01:01");
  EXPECT_EQ(qemu.nics()[0].device, kNic + ",romfile=");
  EXPECT_EQ(qemu.nics()[0].netdev, kNetdev);
  const Words arrives = qemu.for_arrival("/run/x");
  const Words rest{"qemu",
                   "-m",
                   "512",
                   "-drive",
                   "file=/san/disk,,1,format=raw",
                   "-kernel",
                   "/boot/kernel",
                   "-blockdev",
                   "driver=file,filename=/san/two,node-name=d",
                   "--netdev",
                   "user,id=net0"};
  ASSERT_GT(arrives.size(), rest.size());
  EXPECT_EQ(Words(arrives.begin(), arrives.begin() + static_cast<long>(rest.size())), rest);
  EXPECT_EQ(Words(arrives.end() - 3, arrives.end()), (Words{"-S", "-incoming", "defer"}));
  // The devices are the same in the same order, but for the NIC.
  const Words starts = qemu.for_start("/run/x");
  EXPECT_EQ(Words(starts.begin() + static_cast<long>(command().size()), starts.end()),
            Words(arrives.begin() + static_cast<long>(rest.size()), arrives.end() - 3));
}

TEST(QemuCommandTest, TheOtherHostNeedsItsFiles) {
  const QemuCommand qemu(command(), {});
  EXPECT_EQ(qemu.files(), (std::set<std::string>{"/boot/kernel", "/san/disk,1", "/san/two"}));
}

TEST(QemuCommandTest, SaysWhatIsWrongWithIt) {
  const auto complaint = [](const Words& words, const Words& nics) {
    return failure_of([&] { QemuCommand(words, nics); });
  };
  EXPECT_EQ(complaint({}, {}), "QEMU's command is missing");
  EXPECT_EQ(complaint(command(), {"nic2"}),
            "QEMU's command has no -device with id=nic2, which --nic names");
  EXPECT_EQ(complaint({"qemu", "-device", "e1000e,id=a,bus=p"}, {"a"}),
            "give the NIC a a mac=, by which its machine knows it again");
  EXPECT_EQ(complaint({"qemu", "-device", "e1000e,id=a,mac=1"}, {"a"}),
            "give the NIC a a bus= (a pcie-root-port): the machine looks the same without it then");
  EXPECT_EQ(complaint({"qemu", "-device", "e1000e,id=a,mac=1,bus=p,netdev=n"}, {"a"}),
            "QEMU's command has no -netdev with id=n");
  EXPECT_EQ(complaint({"qemu", "-device", "e1000e,id=a,mac=1,bus=p,netdev=n", "-netdev",
                       "tap,id=n,script=a b"},
                      {"a"}),
            "'tap,id=n,script=a b' has blanks or quotes, with which a NIC cannot be plugged");
  for (const char* option : {"-S", "--daemonize", "-incoming"}) {
    EXPECT_NE(complaint({"qemu", option}, {}).find("Ferry starts the machine"), std::string::npos);
  }
}

TEST(MachineRecordTest, IsReadAsItWasWritten) {
  const test::Folder folder;
  const MachineRecords records(folder.path());
  const pid_t self = ::getpid();
  records.write({"m1", command(), {"nic1"}, "/home", self, start_time(self), true});
  auto record = records.find("m1");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->command, command());
  EXPECT_EQ(record->nics, Words{"nic1"});
  EXPECT_EQ(record->directory, "/home");
  EXPECT_TRUE(record->is_arriving && record->is_alive());
  // In two steps.
  record->is_arriving = false;
  ++record->started;
  records.stage(*record);
  EXPECT_TRUE(records.find("m1")->is_arriving);
  records.publish("m1");
  EXPECT_FALSE(records.find("m1")->is_arriving);
  EXPECT_FALSE(records.find("m1")->is_alive());
  EXPECT_EQ(records.all().size(), 1u);
  records.remove("m1");
  EXPECT_TRUE(records.all().empty());
  for (const char* bad : {"", "..", "a/b", ".a"}) {
    EXPECT_FALSE(records.find(bad));
    EXPECT_NE(failure_of([&] { MachineRecords::need_name(bad); }), "");
  }
}

}  // namespace
}  // namespace ferry::host
