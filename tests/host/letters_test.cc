#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "base/failure.h"
#include "ferryd_here.h"
#include "host/letters/suspension.h"
#include "played_process.h"

// Letters between programs with devices of the kernel, by the ferryds of two hosts.
namespace ferry::test {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<device::Letter::End>;

device::Letter::End letter_end(std::uint32_t host, std::uint32_t qpn) {
  return {port::Address::from_ipv4(0x0A4F0000 + host), qpn};
}

struct Letters : testing::Test {
  const device::Letter::End m = letter_end(1, 17), p = letter_end(2, 18);
  const device::Letter letter{m, p, {std::byte{1}}};
  const std::vector<std::byte> many = std::vector<std::byte>(1 << 19);  // bytes of a letter
  std::atomic<bool> is_known{true};                                     // to the kernel there
  FerrydHere here{"here"}, there{"there"};

  void SetUp() override {
    // Every process has both QPs.
    be_told(here, {m, p});
    be_told(there, {m, p});
    here.carrier->met({there.host.address, "there"});
  }
  void be_told(FerrydHere& ferryd, const Names& names) {
    ferryd.stop();
    ferryd.kernel.names_of = [this, names](const std::set<pid_t>& pids) {
      return every_process_has(is_known ? names : Names())(pids);
    };
    ferryd.restart();
  }
  static void await(FerrydHere& ferryd, std::size_t processes) {
    ASSERT_TRUE(eventually([&] { return ferryd.control->processes().size() == processes; }));
  }
};

TEST_F(Letters, ReachTheOtherEndOnAnotherHost) {
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  for (int i = 0; i < 3; ++i) here.carrier->send(sender.pid(), {letter});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 3; }));
  // The receiver's ferryd knows the way back.
  there.carrier->send(receiver.pid(), {{p, m, {std::byte{1}}}});
  EXPECT_TRUE(eventually([&] { return sender.seen().letters == 1; }));
}

// A peer of many processes must not cost its host more with the square of their number.
TEST_F(Letters, ToSeveralProcessesAskTheKernelOnce) {
  constexpr std::uint32_t kProcesses = 4;
  Names peers;
  for (std::uint32_t i = 0; i < kProcesses; ++i) peers.push_back(letter_end(2, 20 + i));
  std::atomic<int> questions{0};
  there.stop();
  there.kernel.names_of = [&](const std::set<pid_t>& pids) {
    ++questions;
    return every_process_has(peers)(pids);
  };
  there.restart();
  std::vector<std::unique_ptr<PlayedProcess>> receivers;
  std::vector<device::Letter> all;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    receivers.push_back(
        std::make_unique<PlayedProcess>(there.folder.path("sock"), has(peers[i], m, 2 + i)));
    all.push_back({m, peers[i], {std::byte{1}}});
  }
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  await(here, 1);
  await(there, kProcesses);
  const auto have = [&](int letters) {
    return eventually([&] {
      return std::all_of(receivers.begin(), receivers.end(),
                         [&](const auto& receiver) { return receiver->seen().letters == letters; });
    });
  };
  here.carrier->send(sender.pid(), all);
  EXPECT_TRUE(have(1));
  EXPECT_EQ(questions, 1);
  // By now their names are remembered, also as those of senders.
  here.carrier->send(sender.pid(), all);
  EXPECT_TRUE(have(2));
  there.carrier->send(receivers.front()->pid(), {{peers.front(), m, {std::byte{1}}}});
  EXPECT_EQ(questions, 1);
  there.stop();  // before what the kernel's part uses goes away
}

TEST_F(Letters, ReachTheOtherEndOnTheSameHost) {
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(here.folder.path("sock"), has(p, m, 2));
  await(here, 2);
  here.carrier->send(sender.pid(), {letter});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
}

TEST_F(Letters, WaitForAReceiverThatIsOnItsWay) {
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  await(here, 1);
  here.carrier->send(sender.pid(), {letter, letter});
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 2; }));
}

TEST_F(Letters, InTheNameOfAnothersQpAreDropped) {
  be_told(here, {letter_end(1, 99)});
  here.carrier->met({there.host.address, "there"});
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  here.carrier->send(sender.pid(), {letter});
  here.carrier->send(
      sender.pid(),
      {{letter_end(1, 99), p, {std::byte{1}}}});  // its own, but not the receiver's peer
  PlayedProcess other(there.folder.path("sock"), has(p, letter_end(1, 99), 3));
  EXPECT_TRUE(eventually([&] { return other.seen().letters == 1; }));
  EXPECT_EQ(receiver.seen().letters, 0);
}

TEST_F(Letters, AreNotGivenToWhoClaimsAnothersQp) {
  be_told(there, {});
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  EXPECT_FALSE(here.carrier->find({{m, p}}).places.front());
  EXPECT_EQ(receiver.seen().letters, 0);
}

TEST_F(Letters, AProgramIsFoundWhereItIs) {
  PlayedProcess peer(there.folder.path("sock"), has(p, m, 2));
  await(there, 1);
  const auto [found, silent] = here.carrier->find({{m, p}, {p, m}, {m, letter_end(2, 19)}});
  ASSERT_TRUE(found[0]);
  EXPECT_EQ(found[0]->address, there.host.address);
  EXPECT_FALSE(found[1]);
  EXPECT_FALSE(found[2]);
  EXPECT_FALSE(silent.contains(there.host.address));
  const auto here_too = there.carrier->find({{m, p}}).places;
  ASSERT_TRUE(here_too[0]);
  EXPECT_EQ(here_too[0]->address, "");
  EXPECT_EQ(peer.seen().letters, 0) << "it was only asked for";
}

TEST_F(Letters, FerrydsThatDoNotAnswerAreNamed) {
  here.carrier->met({"127.0.0.1:1", "deaf"});
  const auto found = here.carrier->find({{m, p}});
  EXPECT_FALSE(found.places.front());
  EXPECT_TRUE(found.silent.contains("127.0.0.1:1"));
}

// A request between ferryds has a limit, which all of these are beyond.
TEST_F(Letters, OfManyBytesReachAnotherHost) {
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  here.carrier->send(sender.pid(), std::vector(12, device::Letter{m, p, many}));
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 12; }));
}

// The limit holds for letters that are tried again and again as well.
TEST_F(Letters, AreDroppedWhenTooManyAreUnderWay) {
  here.most_letters = 100;
  be_told(here, {m, p});
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  await(here, 1);
  here.carrier->send(sender.pid(), std::vector(101, letter));
  here.carrier->send(sender.pid(), std::vector(100, letter));
  std::this_thread::sleep_for(milliseconds(100));  // the thread may have taken them
  here.carrier->send(sender.pid(), {letter, letter});
  PlayedProcess receiver(here.folder.path("sock"), has(p, m, 2));
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 100; }));
  // Letters to one QP arrive in their order: behind the next one, nothing that was sent before it comes any more.
  int sent = 0;
  while (receiver.seen().letters == 100) {
    ASSERT_LT(++sent, 100);
    here.carrier->send(sender.pid(), {letter});
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_LE(receiver.seen().letters, 100 + sent);
}

// A QP of this number is there, and no program of Ferry's has it.
TEST_F(Letters, ToAProgramWithoutFerryComeBack) {
  there.stop();
  there.kernel.there_are = [this](const Names&) { return std::set<device::Letter::End>{p}; };
  there.restart();
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  await(here, 1);
  here.carrier->send(sender.pid(), {letter});
  EXPECT_TRUE(eventually([&] { return sender.seen().returned_letters == 1; }));
}

// Until it registers, the QP of a program of Ferry's looks like another's.
TEST_F(Letters, WaitForAReceiverThatHasNotRegisteredYet) {
  there.stop();
  there.kernel.there_are = [this](const Names&) { return std::set<device::Letter::End>{p}; };
  there.restart();
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  await(here, 1);
  here.carrier->send(sender.pid(), {letter});
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
  EXPECT_EQ(sender.seen().returned_letters, 0);
}

TEST_F(Letters, OfNoBytesAreFerrydsAlone) {
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  here.carrier->send(sender.pid(), {{m, p, {}}, letter});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
  EXPECT_EQ(receiver.seen().returned_letters, 0);
}

// The receiver has moved from here to there; here its number is one of a program without Ferry now.
TEST_F(Letters, GoOnToAReceiverWhoseNumberIsUsedAgainAtItsFormerHost) {
  here.stop();
  here.kernel.there_are = [this](const Names&) { return std::set<device::Letter::End>{p}; };
  here.kernel.names_of = every_process_has({m});
  here.restart();
  here.carrier->met({there.host.address, "there"});
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  std::this_thread::sleep_for(host::Carrier::kAllHaveRegistered);
  here.carrier->send(sender.pid(), {letter});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
  EXPECT_EQ(sender.seen().returned_letters, 0);
}

// A process that has moved nowhere says that this host's GIDs have moved.
TEST_F(Letters, WithoutANumberAreDropped) {
  const device::Letter::End gid_of_host{m.gid, 0};
  here.stop();
  here.has_kernel_devices = true;
  here.kernel.names_of = every_process_has({m, gid_of_host});
  here.restart();
  here.carrier->met({there.host.address, "there"});
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  here.carrier->send(sender.pid(), {{gid_of_host, p, {std::byte{1}}}, letter});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
  EXPECT_TRUE(here.residents->of(sender.pid()).names == Names{m});
}

// A QP is made anew when its peer moves: then the kernel knows it by another number.
TEST_F(Letters, FindAQpByTheNameThatItHadAtFirst) {
  PlayedProcess sender(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess receiver(there.folder.path("sock"), has(p, m, 2));
  await(here, 1);
  await(there, 1);
  here.carrier->send(sender.pid(), {letter});
  ASSERT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
  is_known = false;
  here.carrier->send(sender.pid(), {letter});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 2; }));
}

TEST_F(Letters, ASuspensionEndsWhenAllPeersAreSuspended) {
  auto behaviour = has(m, p, 1);
  behaviour.suspended_after = 5;
  PlayedProcess process(here.folder.path("sock"), behaviour);
  await(here, 1);
  {
    const Suspension suspension(*here.control, {process.pid()}, 7, milliseconds(60000));
    EXPECT_EQ(process.seen().suspensions, 6);
    EXPECT_EQ(process.seen().releases, 0);
  }
  EXPECT_EQ(process.seen().releases, 1);
}

TEST_F(Letters, ASuspensionThatLastsForTooLongIsGivenUp) {
  auto behaviour = has(m, p, 1);
  behaviour.suspended_after = 1 << 30;
  PlayedProcess process(here.folder.path("sock"), behaviour);
  await(here, 1);
  EXPECT_THROW(Suspension(*here.control, {process.pid()}, 7, milliseconds(5)), Failure);
  EXPECT_EQ(process.seen().releases, 1);
}

}  // namespace
}  // namespace ferry::test
