#include "rnic/progress/looks.h"

#include <gtest/gtest.h>

namespace ferry::rnic {
namespace {

// Packets until the next look, that one included.
unsigned packets_until_due(Looks& looks) {
  for (unsigned packets = 1;; ++packets) {
    if (looks.due()) return packets;
    if (packets > 2 * Looks::kRarest) return 0;
  }
}

TEST(LooksTest, AfterEveryPacketWhileAnotherOneFollows) {
  Looks looks;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(packets_until_due(looks), 1u);
    looks.ended(true);
  }
}

TEST(LooksTest, EverMoreSeldomWhereNothingFollows) {
  Looks looks;
  for (const unsigned packets : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 256u, 256u}) {
    EXPECT_EQ(packets_until_due(looks), packets);
    looks.ended(false);
  }
  looks.ended(true);
  EXPECT_EQ(packets_until_due(looks), 1u);
}

}  // namespace
}  // namespace ferry::rnic
