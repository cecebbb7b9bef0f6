#include "host/journal/decision.h"

#include <gtest/gtest.h>

namespace ferry::host {
namespace {

using Source = SourceDecision;
using Destination = DestinationDecision;

Source promised() {
  Source source;
  source.restored();
  source.written(Written::kDurable);
  return source;
}

Destination held() {
  Destination destination;
  destination.held();
  return destination;
}

TEST(SourceDecision, CommitsWhenTheDestinationHas) {
  Source source;
  EXPECT_EQ(source.next(), Source::Step::kNone);
  EXPECT_EQ(source.answer(), Answer::kUnknown);
  source.restored();
  EXPECT_EQ(source.next(), Source::Step::kRecordCommit);
  EXPECT_EQ(source.answer(), Answer::kUnknown);  // not on record yet
  source.written(Written::kDurable);
  EXPECT_EQ(source.next(), Source::Step::kAskCommit);
  EXPECT_EQ(source.answer(), Answer::kCommitted);
  EXPECT_FALSE(source.decided());
  source.answered(Answer::kUnknown);
  EXPECT_EQ(source.next(), Source::Step::kAskCommit);
  source.answered(Answer::kCommitted);
  EXPECT_TRUE(source.committed());
  EXPECT_EQ(source.next(), Source::Step::kNone);
}

TEST(SourceDecision, FailuresAbortUntilItHasPromised) {
  Source source;
  source.failed();
  EXPECT_EQ(source.state(), Source::State::kAborted);
  source.restored();  // too late
  EXPECT_EQ(source.state(), Source::State::kAborted);
  EXPECT_EQ(source.answer(), Answer::kAborted);

  Source recording;
  recording.restored();
  recording.failed();
  EXPECT_EQ(recording.state(), Source::State::kRecording);
  Source late = promised();
  late.failed();
  EXPECT_EQ(late.state(), Source::State::kPromised);
}

TEST(SourceDecision, TheDestinationsAbortIsFinal) {
  Source source = promised();
  source.answered(Answer::kAborted);
  EXPECT_EQ(source.state(), Source::State::kAborted);
  source.answered(Answer::kCommitted);
  EXPECT_EQ(source.state(), Source::State::kAborted);
}

TEST(SourceDecision, AFullDiskAborts) {
  Source source;
  source.restored();
  source.written(Written::kNot);
  EXPECT_EQ(source.state(), Source::State::kAborted);
}

// The promise may be found later: the program goes on only when the destination cannot.
TEST(SourceDecision, APromiseThatMayBeOnRecordIsRevokedThere) {
  Source source;
  source.restored();
  source.written(Written::kUnknown);
  EXPECT_EQ(source.next(), Source::Step::kAskAbort);
  EXPECT_EQ(source.answer(), Answer::kUnknown);
  EXPECT_FALSE(source.decided());
  source.failed();
  source.answered(Answer::kUnknown);
  EXPECT_EQ(source.next(), Source::Step::kAskAbort);
  Source other = source;
  source.answered(Answer::kAborted);
  EXPECT_EQ(source.state(), Source::State::kAborted);
  other.answered(Answer::kCommitted);  // by an operator's word
  EXPECT_TRUE(other.committed());
}

TEST(SourceDecision, OperatorsDecideOnlyWhatIsInDoubt) {
  Source source;
  source.operator_aborts();
  EXPECT_EQ(source.state(), Source::State::kOpen);
  Source asked = promised();
  asked.operator_aborts();
  EXPECT_EQ(asked.state(), Source::State::kAborted);
  Source done = promised();
  done.answered(Answer::kCommitted);
  done.operator_aborts();
  EXPECT_TRUE(done.committed());
}

// A restarted ferryd must not take its own promise for the destination's commit: what was restored
// there may be gone.
TEST(SourceDecision, APromiseOnRecordIsAskedAbout) {
  EXPECT_EQ(Source::recovered(std::nullopt).state(), Source::State::kAborted);
  EXPECT_EQ(Source::recovered(Decision::kAborted).state(), Source::State::kAborted);
  EXPECT_EQ(Source::recovered(Decision::kConfirmed).state(), Source::State::kCommitted);
  const Source source = Source::recovered(Decision::kCommitted);
  EXPECT_FALSE(source.decided());
  EXPECT_EQ(source.next(), Source::Step::kAskCommit);
  EXPECT_EQ(source.answer(), Answer::kCommitted);
}

// A group moves when all of its programs can.
TEST(SourceDecision, AGroupIsRecordedWhenAllAreRestored) {
  Source group(3);
  group.restored(2);
  group.restored(2);
  group.restored(0);
  EXPECT_EQ(group.next(), Source::Step::kNone);
  EXPECT_EQ(group.answer(), Answer::kUnknown);
  Source fails = group;
  group.restored(1);
  EXPECT_EQ(group.next(), Source::Step::kRecordCommit);
  fails.failed();
  fails.restored(1);
  EXPECT_EQ(fails.state(), Source::State::kAborted);
}

TEST(DestinationDecision, CommitsWhatItHolds) {
  Destination destination = held();
  EXPECT_TRUE(destination.waits());
  EXPECT_EQ(destination.answer(), Answer::kUnknown);
  EXPECT_TRUE(destination.promised());
  EXPECT_EQ(destination.next(), Destination::Step::kRecordCommit);
  EXPECT_FALSE(destination.failed());
  EXPECT_EQ(destination.answer(), Answer::kUnknown);
  destination.written(Written::kDurable);
  EXPECT_TRUE(destination.committed());
  EXPECT_EQ(destination.answer(), Answer::kCommitted);
  EXPECT_FALSE(destination.failed());
  EXPECT_TRUE(destination.committed());
  EXPECT_TRUE(destination.promised());  // asked again
}

TEST(DestinationDecision, HasNothingToCommitBeforeItHolds) {
  Destination destination;
  EXPECT_FALSE(destination.promised());
  EXPECT_EQ(destination.answer(), Answer::kAborted);
  destination.held();  // too late
  EXPECT_EQ(destination.state(), Destination::State::kAborted);
}

TEST(DestinationDecision, HoldsAGroupWhenItHoldsAllOfIt) {
  Destination group(2), part(2);
  for (Destination* each : {&group, &part}) {
    each->held(1);
    each->held(1);
    EXPECT_FALSE(each->waits());
  }
  group.held(0);
  EXPECT_TRUE(group.waits());
  EXPECT_TRUE(group.promised());
  EXPECT_FALSE(part.promised());
  EXPECT_EQ(part.answer(), Answer::kAborted);
}

// One that has not promised may go on with its programs.
TEST(DestinationDecision, WaitsForThePromisesOfAllSources) {
  Destination group(2, 3);
  group.held(0);
  group.held(1);
  EXPECT_TRUE(group.promised(2));
  EXPECT_TRUE(group.promised(2));
  EXPECT_TRUE(group.promised(0));
  EXPECT_TRUE(group.has_promised(0) && !group.has_promised(1));
  EXPECT_TRUE(group.waits());
  EXPECT_EQ(group.next(), Destination::Step::kNone);
  Destination fails = group;
  EXPECT_TRUE(fails.failed());
  EXPECT_FALSE(fails.promised(1));
  EXPECT_EQ(fails.answer(), Answer::kAborted);
  group.promised(1);
  EXPECT_EQ(group.next(), Destination::Step::kRecordCommit);
  Destination open;
  open.operator_commits();  // nothing is held
  EXPECT_EQ(open.next(), Destination::Step::kNone);
}

TEST(DestinationDecision, AbortsWhileNothingIsOnRecord) {
  Destination open, holding = held();
  EXPECT_TRUE(open.failed());
  EXPECT_TRUE(holding.failed());
  EXPECT_FALSE(holding.promised());
  EXPECT_EQ(holding.answer(), Answer::kAborted);
  Destination full = held();
  full.promised();
  full.written(Written::kNot);
  EXPECT_EQ(full.answer(), Answer::kAborted);
}

TEST(DestinationDecision, SaysNothingWhileACommitMayBeOnRecord) {
  Destination destination = held();
  destination.promised();
  destination.written(Written::kUnknown);
  for (const Written result : {Written::kNot, Written::kUnknown}) {
    EXPECT_EQ(destination.next(), Destination::Step::kRecordAbort);
    EXPECT_EQ(destination.answer(), Answer::kUnknown);
    EXPECT_FALSE(destination.decided());
    destination.written(result);
  }
  destination.written(Written::kDurable);
  EXPECT_EQ(destination.answer(), Answer::kAborted);
  EXPECT_EQ(destination.next(), Destination::Step::kNone);
}

TEST(DestinationDecision, IsRecoveredFromItsRecord) {
  EXPECT_EQ(Destination::recovered(std::nullopt).answer(), Answer::kAborted);
  EXPECT_EQ(Destination::recovered(Decision::kAborted).answer(), Answer::kAborted);
  EXPECT_EQ(Destination::recovered(Decision::kCommitted).answer(), Answer::kCommitted);
}

}  // namespace
}  // namespace ferry::host
