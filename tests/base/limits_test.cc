#include "base/limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/failure.h"
#include "transport/transport.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;

std::string refusal(const std::string& text) {
  Limits limits;
  try {
    set_limit(text, &limits);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "(taken)";
}

TEST(Limits, AreSetWithTheirUnits) {
  Limits limits;
  set_limit("stop=500ms", &limits);
  set_limit("stand-in=90s", &limits);
  set_limit("restore=7min", &limits);
  set_limit("peers=0ms", &limits);
  EXPECT_EQ(limits.stop, 500ms);
  EXPECT_EQ(limits.stand_in, 90s);
  EXPECT_EQ(limits.restore, 7min);
  EXPECT_EQ(limits.peers, 0ms);
  EXPECT_EQ(limits.transfer, Limits().transfer);
}

TEST(Limits, NonsenseIsRefusedInOneLine) {
  EXPECT_EQ(
      refusal("stops=1s"),
      "there is no limit 'stops'; known: stop, transfer, restore, standstill, source, resume, "
      "peers, stand-in, checkpoint, origin, lease");
  for (const char* text : {"stop", "stop=", "stop=1", "stop=s", "stop=-1s", "stop=1.5s", "stop=1 s",
                           "stop=99ms", "stop=61min", "stop=4294967296ms", "stop=1h"}) {
    EXPECT_EQ(refusal(text), std::string("--limit ") + text +
                                 ": give a time from 100ms to 60min, for example stop=10s");
  }
}

TEST(Limits, DefaultsAreInTheirRanges) {
  for (const Limit& limit : all_limits()) {
    Limits limits;
    const auto value = limits.*limit.value;
    EXPECT_LE(limit.least, value) << limit.name;
    EXPECT_LE(value, limit.most) << limit.name;
    limits.*limit.value = {};
    set_limit(std::string(limit.name) + "=" + to_string(value), &limits);
    EXPECT_EQ(limits.*limit.value, value) << limit.name;
  }
}

// Or they would end the connection: "a failed move leaves the program running" would not hold.
TEST(Limits, WhatComesBeforeTheCommitIsShorterThanPeersWait) {
  const Limits limits;
  const auto peers_wait = transport::MigrationSettings().paused_limit;
  for (const auto limit : {limits.stop, limits.transfer, limits.restore, limits.standstill}) {
    EXPECT_LE(limit, peers_wait - 10s) << to_string(limit);
  }
}

// The table tells names, defaults and ranges as they are.
TEST(Limits, AreDocumented) {
  std::ifstream file(std::string(FERRY_SOURCE) + "/docs/settings.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const Limit& limit : all_limits()) {
    const std::string row = std::string("| `") + limit.name + "` | " +
                            to_string(Limits().*limit.value) + " | " + to_string(limit.least) +
                            " to " + to_string(limit.most) + " |";
    EXPECT_NE(text.str().find(row), std::string::npos) << "docs/settings.md lacks: " << row;
  }
}

}  // namespace
}  // namespace ferry
