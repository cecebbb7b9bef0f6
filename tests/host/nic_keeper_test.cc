#include "host/guest/nic_keeper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "host/proc/subprocess.h"
#include "own_network.h"
#include "played_process.h"
#include "temporary.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

using test::eventually;
using test::ip;

constexpr char kMac[] = "52:54:00:12:34:56";

// A NIC is one end of a veth, and its cable the other. rxe0 is on it, in a /sys that the test writes.
struct Machine {
  test::Folder folder;
  std::string made;  // "rxe0 of rxe on nic0, "
  NicKeeper::Setup setup{folder.path("nics"),
                         [this](const RdmaDevice& device, const std::string& interface) {
                           made += device.name + " of " + device.type + " on " + interface + ", ";
                           fs::create_directories(folder.path("sys/" + device.name));
                           folder.write("sys/" + device.name + "/parent", interface + "\n");
                           return std::string();
                         },
                         folder.path("sys")};

  Machine() { setup.hold = std::chrono::milliseconds(0); }

  static void plug(const std::string& name, const std::string& cable) {
    ip("link add " + name + " address " + kMac + " type veth peer name " + cable + "\nlink set " +
       cable + " up");
  }
  void configure() const {
    ip("link set nic0 mtu 1400 up\n"
       "address add 10.7.0.1/24 broadcast 10.7.0.255 dev nic0\n"
       "address add 10.7.0.2/24 dev nic0 label nic0:two\n"
       "address add 10.8.0.1 peer 10.8.0.2/32 dev nic0\n"
       "address add fd07::1/64 dev nic0 nodad\n"
       "route add default via 10.7.0.254 dev nic0\n"
       "route add 10.9.0.0/16 via 10.7.0.253 dev nic0 proto static metric 5 mtu 1300\n"
       "route add 10.10.0.0/16 dev nic0 scope link src 10.7.0.2 table 77\n"
       "route append 10.9.0.0/16 via 10.7.0.252 dev nic0 metric 5\n"
       "route add blackhole 10.11.0.0/16 table 77\n"
       "route add 10.12.0.0/16 via inet6 fd07::9 dev nic0\n"
       "route add ::/0 dev nic0 metric 9\n"
       "route add fd09::/64 via fd07::9 dev nic0");
    fs::create_directories(folder.path("sys/rxe0"));
    folder.write("sys/rxe0/parent", "nic0\n");
  }
  void unplug() const {
    ip("link delete nic0");
    fs::remove_all(folder.path("sys/rxe0"));
  }
  NicNote now(const std::string& name = "nic0") const {
    const auto nic = nic_of(kMac);
    EXPECT_TRUE(nic);
    EXPECT_EQ(nic->name, name);
    return look_at_nic(*nic, setup.sysfs);
  }
  // The keeper has nothing left to do.
  bool is_done() const { return !fs::exists(setup.file); }
};

// What ip(8) says of nic0, but for what differs from one interface to another by itself.
std::string told() {
  std::string all;
  for (const std::string words :
       {"address show dev nic0 scope global", "route show table all", "-6 route show table all"}) {
    const std::string rest =
        " | grep -Ev '^[0-9]+: |local|link/|fe80|multicast|dev (lo|cable)' | sort";
    all += run({{"sh", "-c", "ip " + words + rest}, {}, {}}).out;
  }
  return all;
}

struct NicKeeperTest : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  static void on_a_machine(const std::function<void(Machine&)>& call) {
    test::with_own_network([&] {
      Machine machine;
      Machine::plug("nic0", "cable0");
      machine.configure();
      call(machine);
    });
  }
};

TEST_F(NicKeeperTest, ANicThatComesBackIsConfiguredAsBefore) {
  on_a_machine([](Machine& machine) {
    NicKeeper keeper(machine.setup);
    EXPECT_EQ(keeper.devices_on({kMac, "52:54:00:00:00:00"}), std::set<std::string>{"rxe0"});
    const auto told_before = told();
    const NicNote before = machine.now();
    EXPECT_EQ(before.addresses.size(), 4u);
    EXPECT_EQ(before.routes.size(), 7u);
    keeper.note({"52:54:00:12:34:56"});
    EXPECT_FALSE(machine.is_done());
    machine.unplug();
    Machine::plug("other", "cable1");
    ASSERT_TRUE(eventually([&] { return machine.is_done(); }));
    const NicNote after = machine.now();
    EXPECT_EQ(missing_of(before, after).text(), "");
    EXPECT_EQ(missing_of(after, before).text(), "");
    EXPECT_EQ(machine.made, "rxe0 of rxe on nic0, ");
    EXPECT_EQ(told(), told_before);
  });
}

// As NetworkManager does it: the kernel makes no routes, and what makes them says that it was the kernel.
TEST_F(NicKeeperTest, RoutesThatLookLikeTheKernelsComeBack) {
  on_a_machine([](Machine& machine) {
    ip("address add 10.20.0.1/24 dev nic0 noprefixroute\n"
       "route add 10.20.0.0/24 dev nic0 proto kernel scope link src 10.20.0.1 metric 100\n"
       "route add 10.21.0.0/24 via 10.20.0.9 dev nic0\n"
       "address add fd20::1/64 dev nic0 nodad noprefixroute\n"
       "route add fd20::/64 dev nic0 proto kernel metric 100\n"
       "route add fd21::/64 proto static nexthop via fd20::8 dev nic0 nexthop via fd20::9 dev "
       "nic0\n"
       "route add 10.22.0.0/24 nexthop via 10.20.0.8 dev nic0 nexthop via 10.20.0.9 dev nic0\n"
       "route add 10.23.0.0/24 nexthop via 10.20.0.8 dev nic0 nexthop via 10.99.0.9 dev cable0 "
       "onlink\n"
       "route add fd23::/64 via fd20::9 dev nic0 expires 3600");
    NicKeeper keeper(machine.setup);
    const auto told_before = told();
    for (const char* route : {"10.20.0.0/24", "10.22.0.0/24", "fd21::/64", "fd23::/64"}) {
      EXPECT_NE(told_before.find(route), std::string::npos) << told_before;
    }
    keeper.note({kMac});
    machine.unplug();
    Machine::plug("nic0", "cable1");
    ASSERT_TRUE(eventually([&] { return machine.is_done(); }));
    const auto told_after = told();
    for (const char* route :
         {"10.20.0.0/24", "10.21.0.0/24", "10.22.0.0/24", "fd20::/64", "fd21::/64", "fd23::/64"}) {
      EXPECT_NE(told_after.find(route), std::string::npos) << told_after;
    }
    EXPECT_EQ(told_after.find("10.23.0.0/24"), std::string::npos);  // not over this one alone
  });
}

TEST_F(NicKeeperTest, TheNextKeeperGoesOn) {
  on_a_machine([](Machine& machine) {
    const NicNote before = machine.now();
    NicKeeper(machine.setup).note({kMac});
    machine.unplug();
    Machine::plug("other", "cable1");
    const NicKeeper next(machine.setup);
    ASSERT_TRUE(eventually([&] { return machine.is_done(); }));
    EXPECT_EQ(missing_of(before, machine.now()).text(), "");
  });
}

TEST_F(NicKeeperTest, WhatSomebodyElseHasConfiguredStays) {
  on_a_machine([](Machine& machine) {
    const NicNote before = machine.now();
    NicKeeper(machine.setup).note({kMac});
    machine.unplug();
    Machine::plug("nic0", "cable1");
    ip("link set nic0 up\naddress add 10.7.0.1/24 dev nic0\naddress add 10.77.0.1/24 dev nic0\n"
       "route add default via 10.7.0.254 dev nic0");
    const NicKeeper next(machine.setup);
    ASSERT_TRUE(eventually([&] { return machine.is_done(); }));
    EXPECT_EQ(missing_of(before, machine.now()).text(), "");
    EXPECT_EQ(missing_of(machine.now(), before).text(), "10.77.0.1/24");
  });
}

TEST_F(NicKeeperTest, WhatSomebodyElseTakesAwayForAWhileIsGivenAgain) {
  on_a_machine([](Machine& machine) {
    machine.setup.hold = std::chrono::hours(1);
    const NicNote before = machine.now();
    NicKeeper keeper(machine.setup);
    keeper.note({kMac});
    machine.unplug();
    Machine::plug("nic0", "cable1");
    const auto is_as_before = [&] { return missing_of(before, machine.now()).none(); };
    ASSERT_TRUE(eventually(is_as_before));
    ip("address flush dev nic0");
    EXPECT_TRUE(eventually(is_as_before));
    EXPECT_FALSE(machine.is_done());
  });
}

TEST_F(NicKeeperTest, ANicWhoseNameIsTakenIsConfiguredUnderItsNewOne) {
  on_a_machine([](Machine& machine) {
    machine.setup.pauses = {std::chrono::milliseconds(1)};
    NicKeeper keeper(machine.setup);
    const NicNote before = machine.now();
    keeper.note({kMac});
    machine.unplug();
    ip("link add nic0 type veth peer name another");
    Machine::plug("other", "cable1");
    ASSERT_TRUE(eventually([&] { return machine.is_done(); }));
    EXPECT_EQ(missing_of(before, machine.now("other")).text(), "its name");
    EXPECT_EQ(machine.made, "rxe0 of rxe on other, ");
  });
}

TEST_F(NicKeeperTest, ANicThatHasNeverGoneGetsOnlyWhatItLacks) {
  on_a_machine([](Machine& machine) {
    NicKeeper keeper(machine.setup);
    const NicNote before = machine.now();
    keeper.note({kMac});
    ip("address delete 10.8.0.1 peer 10.8.0.2/32 dev nic0");
    keeper.stay();
    EXPECT_TRUE(machine.is_done());
    EXPECT_EQ(missing_of(before, machine.now()).text(), "");
    EXPECT_EQ(machine.made, "");
  });
}

TEST_F(NicKeeperTest, ANicThatGoesAgainHalfConfiguredKeepsItsNote) {
  on_a_machine([](Machine& machine) {
    const NicNote before = machine.now();
    NicKeeper::Setup broken = machine.setup;
    broken.pauses = {std::chrono::hours(1)};
    broken.make_device = [](const auto&, const auto&) { return "no memory"; };
    {
      NicKeeper keeper(broken);
      keeper.note({kMac});
      machine.unplug();
      Machine::plug("nic0", "cable1");
      keeper.note({kMac});
      machine.unplug();
    }
    const NicKeeper next(machine.setup);
    Machine::plug("other", "cable2");
    ASSERT_TRUE(eventually([&] { return machine.is_done(); }));
    EXPECT_EQ(missing_of(before, machine.now()).text(), "");
  });
}

TEST_F(NicKeeperTest, ANoteThatCannotBeWrittenIsAFailure) {
  on_a_machine([](Machine& machine) {
    machine.setup.file = machine.folder.path("none/nics");
    NicKeeper keeper(machine.setup);
    EXPECT_NE(test::failure_of([&] { keeper.note({kMac}); }).find("cannot write"),
              std::string::npos);
  });
}

TEST_F(NicKeeperTest, ADamagedFileAndNotesOfAnotherBootAreIgnored) {
  on_a_machine([](Machine& machine) {
    NicKeeper(machine.setup).note({kMac});
    machine.unplug();
    for (const std::string& text : {std::string("{\"nics\":[{}]}"), [&] {
                                      auto other_boot = machine.folder.read("nics");
                                      return other_boot.insert(other_boot.find("\"boot\":") + 7,
                                                               "1");
                                    }()}) {
      machine.folder.write("nics", text);
      NicKeeper keeper(machine.setup);
      Machine::plug("other", "cable1");
      keeper.stay();
      EXPECT_EQ(machine.now("other").addresses.size(), 0u);
      ip("link delete other");
    }
  });
}

}  // namespace
}  // namespace ferry::host
