#include "host/letters/qp_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "port/slot.h"
#include "temporary.h"

namespace ferry::host {
namespace {

const port::Address kNamedHere = port::Address::from_ipv4(0x0A4F0001),
                    kFormer = port::Address::from_ipv4(0x0A4F0002),
                    kNamedElsewhere = port::Address::from_ipv4(0x0A4F0003);

// A program that came with QP 17 of kFormer, and goes on with an RNIC of Ferry's own in slot 5 of kNamedHere.
struct QpNamesOfSlots : testing::Test {
  test::Folder folder;
  Residents residents{folder.path("residents")};
  std::set<port::Address> gids_of_devices;
  QpNames names{residents,
                {.names_of = [](const auto&) { return std::map<pid_t, QpNames::Kernel::Names>(); },
                 .there_are = [](const auto&) { return std::set<device::Letter::End>(); },
                 .gids = [this] { return gids_of_devices; },
                 .slots_of =
                     [](pid_t) {
                       return std::vector<UdpSlot>{{kNamedHere, 5}};
                     }}};

  // ferryd has given the process an RNIC of Ferry's own.
  void fall_back(std::vector<device::Letter::End> brought = {}) {
    residents.settle({::getpid(), 0, {}, std::move(brought), true});
  }
};

TEST_F(QpNamesOfSlots, AreThoseOfTheSlot) {
  fall_back();
  const auto own = names.of(::getpid());
  EXPECT_TRUE(own.has({kNamedHere, port::make_qpn(5, 16)}));
  EXPECT_TRUE(own.has({kNamedHere, port::make_qpn(5, 17)}));
  EXPECT_TRUE(own.has({kNamedHere, 0}));
  EXPECT_FALSE(own.has({kNamedHere, port::make_qpn(6, 16)}));
  EXPECT_FALSE(own.has({kNamedHere, 17}));
  EXPECT_FALSE(own.has({kNamedElsewhere, port::make_qpn(5, 16)}));
  EXPECT_FALSE(own.has({kNamedElsewhere, 0}));
  EXPECT_EQ(own.gids(), std::set<port::Address>{kNamedHere});
}

TEST_F(QpNamesOfSlots, AreUnderstoodUnderTheAddressesThatTheProgramHasBrought) {
  fall_back({{kFormer, 17}});
  const auto own = names.of(::getpid());
  EXPECT_TRUE(own.has({kFormer, 17}));
  EXPECT_TRUE(own.has({kFormer, port::make_qpn(5, 16)}));
  EXPECT_FALSE(own.has({kFormer, 18}));
  EXPECT_FALSE(own.has({kFormer, port::make_qpn(4, 16)}));
  EXPECT_EQ(own.gids(), (std::set<port::Address>{kNamedHere, kFormer}));
}

TEST_F(QpNamesOfSlots, AreNobodysWhomFerrydHasNotGivenSuchAnRnic) {
  residents.settle({::getpid(), 0, {}, {{kFormer, 17}}});
  const auto own = names.of(::getpid());
  EXPECT_TRUE(own.has({kFormer, 17}));
  EXPECT_FALSE(own.has({kNamedHere, port::make_qpn(5, 16)}));
  EXPECT_FALSE(own.has({kFormer, port::make_qpn(5, 16)}));
}

TEST_F(QpNamesOfSlots, AreNobodysWhereADeviceOfTheKernelHasTheAddress) {
  fall_back({{kFormer, 17}});
  gids_of_devices = {kNamedHere};
  EXPECT_FALSE(names.of(::getpid()).has({kNamedHere, port::make_qpn(5, 16)}));
  EXPECT_FALSE(names.of(::getpid()).has({kFormer, port::make_qpn(5, 16)}));
  gids_of_devices = {kFormer};
  EXPECT_TRUE(names.of(::getpid()).has({kNamedHere, port::make_qpn(5, 16)}));
  EXPECT_FALSE(names.of(::getpid()).has({kFormer, port::make_qpn(5, 16)}));
  EXPECT_TRUE(names.of(::getpid()).has({kFormer, 17})) << "which it has brought";
}

}  // namespace
}  // namespace ferry::host
