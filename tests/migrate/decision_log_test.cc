#include "migrate/decision_log.h"

#include <gtest/gtest.h>

#include "temporary.h"

namespace ferry::migrate {
namespace {

using test::Folder;

TEST(DecisionLog, KeepsWhatWasRecorded) {
  Folder folder;
  {
    DecisionLog log(folder.path("state"));
    EXPECT_FALSE(log.decision(7, Side::kSource));
    log.record(7, Side::kSource, Decision::kCommitted, "a b%\n");
    log.record(7, Side::kDestination, Decision::kAborted, "");
    log.record(0xFEDCBA9876543210, Side::kSource, Decision::kAborted, "x");
  }
  DecisionLog again(folder.path("state"));
  EXPECT_EQ(again.decision(7, Side::kSource), Decision::kCommitted);
  EXPECT_EQ(again.decision(7, Side::kDestination), Decision::kAborted);
  EXPECT_EQ(again.decision(0xFEDCBA9876543210, Side::kSource), Decision::kAborted);
  EXPECT_FALSE(again.decision(8, Side::kSource));
}

TEST(DecisionLog, TheLastRecordCounts) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.record(1, Side::kSource, Decision::kCommitted, "p");
    log.record(1, Side::kSource, Decision::kAborted, "p");
    EXPECT_EQ(log.decision(1, Side::kSource), Decision::kAborted);
  }
  EXPECT_EQ(DecisionLog(folder.path()).decision(1, Side::kSource), Decision::kAborted);
}

TEST(DecisionLog, ATornOrDamagedRecordIsNone) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.record(1, Side::kSource, Decision::kCommitted, "p");
    log.record(2, Side::kSource, Decision::kCommitted, "p");
  }
  const std::string whole = folder.read("decisions");
  // Every place where a crash may have cut the second record.
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t size = first; size < whole.size() - 1; ++size) {
    folder.write("decisions", whole.substr(0, size));
    DecisionLog log(folder.path());
    EXPECT_EQ(log.decision(1, Side::kSource), Decision::kCommitted);
    EXPECT_FALSE(log.decision(2, Side::kSource)) << size;
    log.record(3, Side::kSource, Decision::kAborted, "p");
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

TEST(DecisionLog, NeedsAFolder) {
  EXPECT_NE(test::failure_of([] { DecisionLog("/proc/ferry"); }).find("cannot make /proc/ferry"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::migrate
