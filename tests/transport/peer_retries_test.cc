#include "transport/peer_retries.h"

#include "transport/script.h"
#include "transport/stopped.h"

// How a standard NIC's requests are answered while its peer is away, by what is known of it.
namespace ferry::transport::test {
namespace {

constexpr Time kRnr = microseconds(655'360);
constexpr Time k67Ms = Time(4096 << 14);

TEST(PeerRetries, ForEverIsAskedBackOftenWhenItIsKnown) {
  const auto known = treatment_of({14, 7, 7, true});
  EXPECT_TRUE(known.answers);
  EXPECT_EQ(int(known.rnr_timer), 22);  // 20.48 ms
  EXPECT_EQ(known.patience, kNever);
  // Assumed only: if it is wrong, as few RNR NAKs as can be.
  const auto assumed = treatment_of({14, 7, 7, false});
  EXPECT_TRUE(assumed.answers);
  EXPECT_EQ(int(assumed.rnr_timer), 0);  // 655 ms
  EXPECT_EQ(assumed.patience, kNever);
}

TEST(PeerRetries, CountedRnrNaksTakeTheLongestTimer) {
  const auto six = treatment_of({14, 7, 6, true});
  EXPECT_TRUE(six.answers);
  EXPECT_EQ(int(six.rnr_timer), 0);
  EXPECT_EQ(six.patience, 6 * kRnr);
}

TEST(PeerRetries, SilenceWhereItIsEnduredForLonger) {
  // The first RNR NAK would end the connection.
  const auto none = treatment_of({14, 7, 0, true});
  EXPECT_FALSE(none.answers);
  EXPECT_EQ(none.patience, 8 * k67Ms);
  const auto one = treatment_of({18, 7, 1, true});
  EXPECT_FALSE(one.answers);
  EXPECT_EQ(one.patience, 8 * 16 * k67Ms);
  EXPECT_TRUE(treatment_of({14, 7, 1, true}).answers);  // 655 ms to 537 ms
  const auto without_timer = treatment_of({0, 0, 6, true});
  EXPECT_FALSE(without_timer.answers);
  EXPECT_EQ(without_timer.patience, kNever);
  EXPECT_EQ(patience_in_silence({0, 3, 7, true}), kNever);
  EXPECT_EQ(patience_in_silence({14, 0, 7, true}), k67Ms);
}

StoppedEnd entry_of(Script& script) {
  script.qp->stop(script.now);
  const auto bytes = script.qp->stand_in_entry({});
  wire::ByteReader in(bytes);
  StoppedEnd entry;
  EXPECT_TRUE(entry.load(in));
  return entry;
}

TEST(PeerRetries, WithoutAWordThePeerIsTakenToBeAsWeAre) {
  ScriptOptions options;
  options.rts.rnr_retry = 0;
  Script s(options);
  EXPECT_FALSE(s.status().peer_retries.known);
  EXPECT_EQ(int(s.status().peer_retries.rnr_retry), 0);
  EXPECT_FALSE(entry_of(s).gets_rnr_naks);
}

TEST(PeerRetries, AResponderWithoutRequestsAssumesWhatProgramsUse) {
  ScriptOptions options;
  options.to_rts = false;
  Script s(options);
  EXPECT_EQ(int(s.status().peer_retries.rnr_retry), 7);
  EXPECT_EQ(int(s.status().peer_retries.retry_count), 7);
  EXPECT_EQ(int(s.status().peer_retries.timeout), 14);
}

TEST(PeerRetries, TheCmsWordCounts) {
  ScriptOptions options;
  options.rts.rnr_retry = 0;
  Script s(options);
  s.qp->set_peer_retries({18, 5, 7, true});
  EXPECT_TRUE(s.status().peer_retries.known);
  const StoppedEnd entry = entry_of(s);
  EXPECT_TRUE(entry.gets_rnr_naks);
  EXPECT_EQ(int(entry.rnr_timer), 22);
  s.qp->reset();
  EXPECT_FALSE(s.status().peer_retries.known);
}

}  // namespace
}  // namespace ferry::transport::test
