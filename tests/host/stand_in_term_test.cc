#include "host/standin/stand_in_term.h"

#include <gtest/gtest.h>

namespace ferry::host {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

TEST(StandInTerm, EndsWhenNoPeerNeedsIt) {
  const StandInTerm term(seconds(100));
  EXPECT_FALSE(term.over(false, seconds(100)));
  EXPECT_TRUE(term.over(true, seconds(100)));
}

TEST(StandInTerm, EndsAtLast) {
  const StandInTerm term(seconds(100));
  EXPECT_FALSE(term.over(false, seconds(100 + 599)));
  EXPECT_TRUE(term.over(false, seconds(100 + 600)));
}

// A program that is moved again before its peers know of the first move has not ended: a peer that
// moves as well still looks for it at its first place.
TEST(StandInTerm, StaysForPausedPeersWhenTheProgramLeaves) {
  const auto limit = seconds(60);
  StandInTerm term(seconds(100));
  term.program_left(seconds(110), limit);
  EXPECT_FALSE(term.over(false, seconds(110)));
  EXPECT_FALSE(term.over(false, seconds(110) + limit - seconds(1)));
  EXPECT_TRUE(term.over(false, seconds(110) + limit));
  StandInTerm late(seconds(100));
  late.program_left(seconds(100) + minutes(10) - seconds(1), limit);  // does not make it longer
  EXPECT_TRUE(late.over(false, seconds(100) + minutes(10)));
}

}  // namespace
}  // namespace ferry::host
