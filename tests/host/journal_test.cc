#include "host/journal/journal.h"

#include <gtest/gtest.h>

#include "port/slot.h"
#include "wire/crc32.h"

namespace ferry::host {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr std::uint64_t kMove = 0xABC;

rnic::Slot slot_at(std::uint32_t host, std::uint32_t slot) {
  rnic::Slot made;
  made.local = {port::Address::from_ipv4(0x0A4E0001 + (host << 8)), port::udp_port_of_slot(slot)};
  made.slot = slot;
  made.epoch = 4;
  return made;
}

// Two slots: one where the RNIC was opened, one where it was not.
struct JournalTest : testing::Test {
  rnic::Slot at_origin = slot_at(1, 3), elsewhere = slot_at(1, 4);
  Held held;
  Going going;
  Journal journal;

  JournalTest() {
    at_origin.origin = at_origin.local;
    at_origin.entries = {{std::byte{1}, std::byte{0xFE}}, {}};
    elsewhere.origin = slot_at(9, 4).local;
    held = {"a b%",
            "h2@10.77.0.2:4780",
            "/run/netns/a.1",
            "a.1",
            12,
            50,
            777,
            {{51, 778, 0xFFFF800012345678, {2, {{"rdma0", {at_origin, elsewhere}}}}}}};
    going = {"h2", {{2, {{"rdma0", {slot_at(2, 3), slot_at(2, 4)}}}}}};
  }
  void take(const std::string& line) {
    ASSERT_EQ(journal.take(line), Journal::Taken::kYes) << line;
  }
  void decide(Side side, Decision decision) {
    take(Journal::decision(side, {decision, "a b%", "h2@10.77.0.2:4780", {kMove}}));
  }
  const Journal::Entry& entry(Side side = Side::kSource) { return *journal.find(kMove, side); }
  // As the next ferryd reads it.
  void reread() {
    const std::string text = journal.text();
    journal = {};
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      take(text.substr(begin, end - begin));
      begin = end + 1;
    }
    EXPECT_EQ(journal.text(), text);
  }
};

TEST_F(JournalTest, HasAllThatIsNeededToAnswerAgain) {
  take(Journal::held(kMove, Side::kSource, held));
  take(Journal::going(kMove, going));
  decide(Side::kSource, Decision::kCommitted);
  decide(Side::kSource, Decision::kConfirmed);
  take(Journal::since(kMove, {1, seconds(2), hours(3)}));
  take(Journal::left(kMove, {1, seconds(4), hours(3)}));
  reread();
  EXPECT_EQ(entry().decision(), Decision::kConfirmed);
  const Held& again = *entry().held;
  EXPECT_EQ(again.program, held.program);
  EXPECT_EQ(again.peer, held.peer);
  EXPECT_EQ(again.netns, held.netns);
  EXPECT_EQ(again.instance, held.instance);
  EXPECT_EQ(again.boot, 12u);
  EXPECT_EQ(again.root, 50);
  EXPECT_EQ(again.started, 777u);
  const HeldProcess& process = again.processes.at(0);
  EXPECT_EQ(process.pid, 51);
  EXPECT_EQ(process.started, 778u);
  EXPECT_EQ(process.control_block, 0xFFFF800012345678u);
  EXPECT_EQ(process.place.inner_pid, 2);
  EXPECT_EQ(process.place.contexts.at(0).netdev, "rdma0");
  const rnic::Slot& slot = process.place.contexts[0].slots.at(0);
  EXPECT_EQ(slot.local, at_origin.local);
  EXPECT_EQ(slot.origin, at_origin.origin);
  EXPECT_EQ(slot.slot, 3u);
  EXPECT_EQ(slot.epoch, 4u);
  EXPECT_EQ(slot.entries, at_origin.entries);
  EXPECT_EQ(entry().going->host, "h2");
  EXPECT_EQ(entry().going->places.at(0).contexts.at(0).slots.at(1).local, slot_at(2, 4).local);
  EXPECT_EQ(entry().since->up, seconds(2));
  EXPECT_EQ(entry().left->up, seconds(4));
  // Only the slot that it was opened in is kept longer than its stand-ins.
  ASSERT_EQ(entry().origins.size(), 1u);
  const Place& place = entry().origins.begin()->second;
  EXPECT_EQ(place,
            (Place{at_origin.origin, slot_at(2, 3).local, "h2", "10.77.0.2:4780", 4, false}));
}

TEST_F(JournalTest, WhatIsOverIsReducedToItsOrigins) {
  take(Journal::held(kMove, Side::kSource, held));
  take(Journal::going(kMove, going));
  decide(Side::kSource, Decision::kConfirmed);
  const std::size_t before = journal.text().size();
  take(journal.over(kMove, Side::kSource));
  reread();
  EXPECT_LT(journal.text().size(), before);
  EXPECT_TRUE(entry().over);
  EXPECT_TRUE(entry().held->processes.empty());
  EXPECT_EQ(entry().held->instance, "a.1");
  EXPECT_EQ(entry().decision(), Decision::kConfirmed);
  Place next = entry().origins.begin()->second;
  next.location = slot_at(5, 6).local;
  next.host = "h5";
  take(Journal::next(kMove, next));
  reread();
  EXPECT_EQ(entry().origins.begin()->second, next);
  const std::size_t after = journal.text().size();
  for (int i = 0; i < 100; ++i) {  // however often it moves on
    ++next.epoch;
    take(Journal::next(kMove, next));
  }
  EXPECT_EQ(journal.text().size(), after);
  reread();
  EXPECT_EQ(entry().origins.begin()->second, next);
  take(Journal::freed(kMove, at_origin.origin));
  take(journal.over(kMove, Side::kSource));
  EXPECT_TRUE(journal.entries().empty());
  EXPECT_EQ(journal.text(), "");
}

TEST_F(JournalTest, AnAbortedMoveIsKnownUntilItsProcessesAreBack) {
  take(Journal::held(kMove, Side::kSource, held));
  decide(Side::kSource, Decision::kCommitted);
  decide(Side::kSource, Decision::kAborted);
  reread();
  EXPECT_EQ(entry().decision(), Decision::kAborted);
  EXPECT_TRUE(entry().held);
  take(journal.over(kMove, Side::kSource));
  EXPECT_TRUE(journal.entries().empty());
}

// That it was over could not be written down, on a full disk.
TEST_F(JournalTest, ANewStopInASlotEndsTheOneBefore) {
  take(Journal::held(kMove, Side::kSource, held));
  decide(Side::kSource, Decision::kCommitted);
  Held other_network = held;
  other_network.netns = "/run/netns/b.1";
  take(Journal::held(kMove + 1, Side::kSource, other_network));
  EXPECT_EQ(journal.entries().size(), 2u);
  take(Journal::held(kMove + 2, Side::kSource, held));
  EXPECT_EQ(journal.find(kMove, Side::kSource), nullptr);
  EXPECT_EQ(journal.entries().size(), 2u);
}

// While there was no ferryd another program took the slot, and is stopped there.
TEST_F(JournalTest, WhoeverHasTheSlotOfACheckpointDoesNotEndIt) {
  take(Journal::held(kMove, Side::kSource, held));
  take(Journal::kept(kMove));
  Held other = held;
  other.root = other.processes[0].pid = 60;
  for (const std::uint64_t move : {kMove - 1, kMove + 1}) {
    for (const Side side : {Side::kSource, Side::kDestination}) {
      take(Journal::held(move, side, other));
      reread();
      ASSERT_NE(journal.find(kMove, Side::kSource), nullptr);
      EXPECT_TRUE(entry().held);
      EXPECT_TRUE(journal.find(move, side)->held);
    }
  }
  // It was restored here itself.
  take(Journal::held(kMove, Side::kDestination, other));
  EXPECT_EQ(journal.find(kMove, Side::kSource), nullptr);
}

TEST_F(JournalTest, WhoeverHasTheSlotOfAMoveInDoubtDoesNotDecideIt) {
  take(Journal::held(kMove, Side::kSource, held));
  decide(Side::kSource, Decision::kCommitted);
  Held other = held;
  other.root = other.processes[0].pid = 60;
  take(Journal::held(kMove + 1, Side::kSource, other));
  ASSERT_NE(journal.find(kMove, Side::kSource), nullptr);
  EXPECT_EQ(entry().decision(), Decision::kCommitted);
  decide(Side::kSource, Decision::kConfirmed);
  take(Journal::held(kMove + 2, Side::kSource, other));
  EXPECT_EQ(journal.find(kMove, Side::kSource), nullptr);
}

// The same of the arrival that brought the program here. A ferryd that took it for one that has not
// got its sockets yet would open them, and keep them from the program when it goes on.
TEST_F(JournalTest, AStopEndsTheArrivalThatWasBefore) {
  take(Journal::held(kMove, Side::kDestination, held));
  decide(Side::kDestination, Decision::kCommitted);
  take(Journal::held(kMove + 1, Side::kSource, held));
  EXPECT_TRUE(entry(Side::kDestination).over);
  EXPECT_EQ(entry(Side::kDestination).decision(), Decision::kCommitted);  // its source may ask
  reread();
  EXPECT_TRUE(entry(Side::kDestination).over);
  EXPECT_FALSE(journal.find(kMove + 1, Side::kSource)->over);
}

// An aborted move whose program has ended since, and another one arrives there.
TEST_F(JournalTest, AnArrivalEndsTheStopThatWasBefore) {
  take(Journal::held(kMove, Side::kSource, held));
  take(Journal::held(kMove - 1, Side::kDestination, held));
  EXPECT_EQ(journal.find(kMove, Side::kSource), nullptr);
  reread();
  EXPECT_FALSE(journal.find(kMove - 1, Side::kDestination)->over);
}

// The source may ask for the commit again until it has forgotten the move.
TEST_F(JournalTest, ACommitIsKnownWhenTheProgramHasEnded) {
  take(Journal::held(kMove, Side::kDestination, held));
  decide(Side::kDestination, Decision::kCommitted);
  take(journal.over(kMove, Side::kDestination));
  reread();
  EXPECT_TRUE(entry(Side::kDestination).over);
  EXPECT_EQ(entry(Side::kDestination).decision(), Decision::kCommitted);
  EXPECT_EQ(entry(Side::kDestination).held->peer, held.peer);
  take(Journal::forgotten(kMove, Side::kDestination));
  EXPECT_TRUE(journal.entries().empty());
}

TEST_F(JournalTest, OfAGroupOnlyThoseThatAreKnownAreWritten) {
  take(Journal::held(1, Side::kSource, held));
  held.netns = "/run/netns/b.1";
  take(Journal::held(2, Side::kSource, held));
  take(Journal::decision(Side::kSource, {Decision::kConfirmed, "g", "", {1, 2, 3}}));
  take(journal.over(1, Side::kSource));
  take(journal.over(3, Side::kSource));
  reread();
  EXPECT_EQ(journal.entries().size(), 1u);
  EXPECT_EQ(journal.find(2, Side::kSource)->record->moves, std::vector<std::uint64_t>{2});
}

TEST_F(JournalTest, WhatIsDamagedIsNotTaken) {
  const std::string line = Journal::held(kMove, Side::kSource, held);
  for (std::size_t size = 0; size < line.size(); ++size) {
    EXPECT_EQ(journal.take(line.substr(0, size)), Journal::Taken::kNo);
  }
  for (std::size_t at = 0; at < line.size(); ++at) {
    std::string damaged = line;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_NE(journal.take(damaged), Journal::Taken::kYes) << at;
  }
  EXPECT_TRUE(journal.entries().empty());
}

// With the right CRC: it is as somebody meant it.
std::string sealed(const std::string& text) {
  const auto crc = ~wire::crc32_update(wire::kCrc32Init, std::as_bytes(std::span(text)));
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", crc);
  return text + ' ' + digits;
}

TEST_F(JournalTest, OtherVersionsAreToldFromDamage) {
  const std::string id = "0000000000000abc";
  // Of the first versions of ferryd.
  take(sealed(id + " source committed p 10.77.0.2:4780"));
  EXPECT_EQ(entry().decision(), Decision::kCommitted);
  EXPECT_FALSE(entry().held);
  EXPECT_EQ(journal.take(sealed(id + " source held 2 00ff")), Journal::Taken::kOtherVersion);
  EXPECT_EQ(journal.take(sealed(id + " source held 1 00ff")), Journal::Taken::kOtherVersion);
  EXPECT_EQ(journal.take(sealed(id + " source held 1 0")), Journal::Taken::kOtherVersion);
  EXPECT_EQ(journal.take(sealed(id + " source unheard 1 -")), Journal::Taken::kOtherVersion);
  EXPECT_EQ(journal.take(sealed(id + " source")), Journal::Taken::kNo);
  EXPECT_EQ(journal.take(sealed("xyz source held 1 -")), Journal::Taken::kNo);
  EXPECT_FALSE(entry().held);
}

TEST(Age, WithinOneBootNobodyCanSetTheClock) {
  const Stamp then{1, seconds(100), hours(1000)};
  EXPECT_EQ(age_of(then, {1, seconds(160), hours(5)}), seconds(60));
  EXPECT_EQ(age_of(then, {1, seconds(160), hours(9999)}), seconds(60));
}

TEST(Age, OverARebootItIsTheWallClocksWord) {
  const Stamp then{1, seconds(100), hours(1000)};
  EXPECT_EQ(age_of(then, {2, seconds(20), hours(1001)}), hours(1));
  // Set back meanwhile: but the host has been up for so long.
  EXPECT_EQ(age_of(then, {2, seconds(20), hours(5)}), seconds(20));
}

}  // namespace
}  // namespace ferry::host
