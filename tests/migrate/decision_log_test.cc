#include "migrate/decision_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "temporary.h"

namespace ferry::migrate {
namespace {

using test::Folder;

TEST(DecisionLog, KeepsWhatWasRecorded) {
  Folder folder;
  {
    DecisionLog log(folder.path("state"));
    EXPECT_FALSE(log.decision(7, Side::kSource));
    log.record(Side::kSource, {Decision::kCommitted, "a b%\n", "", {7}});
    log.record(Side::kDestination, {Decision::kAborted, "", "", {7}});
    log.record(Side::kSource, {Decision::kConfirmed, "-", "[::1]:4780", {8}});
    log.record(Side::kSource, {Decision::kAborted, "x", "", {0xFEDCBA9876543210}});
  }
  DecisionLog again(folder.path("state"));
  EXPECT_EQ(again.decision(7, Side::kSource), Decision::kCommitted);
  EXPECT_EQ(again.decision(7, Side::kDestination), Decision::kAborted);
  EXPECT_EQ(again.decision(0xFEDCBA9876543210, Side::kSource), Decision::kAborted);
  EXPECT_EQ(again.decision(8, Side::kSource), Decision::kConfirmed);
  EXPECT_EQ(again.find(7, Side::kSource)->program, "a b%\n");
  EXPECT_EQ(again.find(8, Side::kSource)->program, "-");
  EXPECT_EQ(again.find(8, Side::kSource)->peer, "[::1]:4780");
  EXPECT_EQ(again.find(7, Side::kDestination)->program, "");
  EXPECT_FALSE(again.decision(9, Side::kSource));
}

TEST(DecisionLog, TheLastRecordCounts) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.record(Side::kSource, {Decision::kCommitted, "p", "", {1}});
    log.record(Side::kSource, {Decision::kAborted, "p", "", {1}});
    EXPECT_EQ(log.decision(1, Side::kSource), Decision::kAborted);
  }
  EXPECT_EQ(DecisionLog(folder.path()).decision(1, Side::kSource), Decision::kAborted);
}

TEST(DecisionLog, ATornOrDamagedRecordIsNone) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.record(Side::kSource, {Decision::kCommitted, "p", "", {1}});
    log.record(Side::kSource, {Decision::kCommitted, "p", "", {2}});
  }
  const std::string whole = folder.read("decisions");
  // Every place where a crash may have cut the second record.
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t size = first; size < whole.size() - 1; ++size) {
    folder.write("decisions", whole.substr(0, size));
    DecisionLog log(folder.path());
    EXPECT_EQ(log.decision(1, Side::kSource), Decision::kCommitted);
    EXPECT_FALSE(log.decision(2, Side::kSource)) << size;
    log.record(Side::kSource, {Decision::kAborted, "p", "", {3}});
    EXPECT_EQ(DecisionLog(folder.path()).decision(3, Side::kSource), Decision::kAborted) << size;
  }
  std::string damaged = whole;
  damaged[15] ^= 1;
  folder.write("decisions", damaged);
  DecisionLog log(folder.path());
  EXPECT_FALSE(log.decision(1, Side::kSource));
  EXPECT_FALSE(log.decision(0, Side::kSource));
  EXPECT_EQ(log.decision(2, Side::kSource), Decision::kCommitted);
}

// The moves of a group are on the disk together, wherever a crash cuts the line off.
TEST(DecisionLog, AGroupIsOneRecord) {
  Folder folder;
  const std::vector<std::uint64_t> group{5, 0xFEDCBA9876543210, 7};
  {
    DecisionLog log(folder.path());
    log.record(Side::kSource, {Decision::kCommitted, "a, b, c", "h@[::1]:4780", group});
    EXPECT_EQ(log.decision(7, Side::kSource), Decision::kCommitted);
  }
  const std::string whole = folder.read("decisions");
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    folder.write("decisions", whole.substr(0, size));
    DecisionLog log(folder.path());
    for (const auto id : group) {
      const auto record = log.find(id, Side::kSource);
      ASSERT_EQ(record.has_value(), size >= whole.size() - 1) << size;
      if (!record) continue;
      EXPECT_EQ(record->moves, group);
      EXPECT_EQ(record->program, "a, b, c");
      EXPECT_EQ(record->peer, "h@[::1]:4780");
    }
  }
}

// A record that a full disk has cut off is none, and does not take the next one with it.
TEST(DecisionLog, AFullDiskLeavesNoRecord) {
  Folder folder;
  DecisionLog log(folder.path());
  log.record(Side::kSource, {Decision::kCommitted, "p", "", {1}});
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{folder.read("decisions").size() + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  std::string error;
  const Written written = log.write(Side::kSource, {Decision::kCommitted, "p", "", {2}}, &error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(written, Written::kNot);
  EXPECT_NE(error.find("cannot make a record durable in"), std::string::npos);
  EXPECT_FALSE(log.decision(2, Side::kSource));
  log.record(Side::kSource, {Decision::kAborted, "p", "", {3}});
  DecisionLog again(folder.path());
  EXPECT_EQ(again.decision(1, Side::kSource), Decision::kCommitted);
  EXPECT_FALSE(again.decision(2, Side::kSource));
  EXPECT_EQ(again.decision(3, Side::kSource), Decision::kAborted);
}

TEST(DecisionLog, NeedsAFolder) {
  EXPECT_NE(test::failure_of([] { DecisionLog("/proc/ferry"); }).find("cannot make /proc/ferry"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::migrate
