#include "host/history/history.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "host/history/accounts.h"
#include "host/history/move_counters.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::Folder;

v1::PastMove a_move(std::uint64_t id, const std::string& program = "p") {
  v1::PastMove move;
  move.set_move_id(id);
  move.set_direction("out");
  move.set_program(program);
  move.set_from("h1");
  move.set_to("h2");
  return move;
}

void end(History& history, std::uint64_t id, const std::string& reason = {}) {
  history.end(id, Side::kSource, [&](v1::PastMove& move) {
    move.set_outcome(reason.empty() ? "moved" : "failed");
    move.set_reason(reason);
  });
}

struct HistoryTest : testing::Test {
  Folder folder;
  const std::string path = folder.path("history");

  std::vector<std::uint64_t> ids() const {
    std::vector<std::uint64_t> found;
    for (const auto& move : History(path).moves()) found.push_back(move.move_id());
    return found;
  }
};

TEST_F(HistoryTest, IsThereForTheNextFerryd) {
  {
    History history(path);
    history.begin(a_move(1, "pr\xc3\xb6gram \"a\" \\"));
    history.begin(a_move(2));
    history.begin(a_move(0xFEDCBA9876543210));
    end(history, 2, "no room");
    end(history, 1);
  }
  const auto moves = History(path).moves();
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves[0].program(), "pr\xc3\xb6gram \"a\" \\");
  EXPECT_EQ(moves[0].outcome(), "moved");
  EXPECT_EQ(moves[1].outcome(), "failed");
  EXPECT_EQ(moves[1].reason(), "no room");
  EXPECT_EQ(moves[2].move_id(), 0xFEDCBA9876543210);
  EXPECT_EQ(moves[2].outcome(), "under way");
  EXPECT_EQ(History(path).under_way().size(), 1u);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(HistoryTest, AMoveEndsOnce) {
  History history(path);
  history.begin(a_move(1));
  EXPECT_FALSE(history.end(1, Side::kDestination, [](auto&) { FAIL(); }));
  EXPECT_FALSE(history.end(2, Side::kSource, [](auto&) { FAIL(); }));
  end(history, 1, "first");
  EXPECT_FALSE(history.end(1, Side::kSource, [](auto&) { FAIL(); }));
  history.begin(a_move(1));
  EXPECT_EQ(history.moves().size(), 1u);
  EXPECT_EQ(history.moves()[0].reason(), "first");
}

TEST_F(HistoryTest, ATornOrDamagedLineLosesItselfOnly) {
  {
    History history(path);
    for (const std::uint64_t id : {1, 2, 3}) history.begin(a_move(id));
  }
  const std::string whole = folder.read("history");
  const std::size_t second = whole.find('\n') + 1, third = whole.find('\n', second) + 1;
  // Every byte of the second line in turn is another; or the last line ends at every byte.
  for (std::size_t i = second; i + 1 < third; ++i) {
    std::string text = whole;
    text[i] = text[i] == 'x' ? 'y' : 'x';
    folder.write("history", text);
    EXPECT_EQ(ids(), (std::vector<std::uint64_t>{1, 3})) << "byte " << i;
  }
  for (std::size_t size = third; size + 1 < whole.size(); ++size) {
    folder.write("history", whole.substr(0, size));
    EXPECT_EQ(ids(), (std::vector<std::uint64_t>{1, 2})) << size << " bytes";
  }
  // What is written after a torn line counts.
  folder.write("history", whole.substr(0, whole.size() - 5));
  History(path).begin(a_move(4));
  EXPECT_EQ(ids(), (std::vector<std::uint64_t>{1, 2, 4}));
  folder.write("history", std::string(1 << 20, '\0') + "\n\xff\n{}\n" + whole);
  EXPECT_EQ(ids(), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(HistoryTest, HasTheLatestMovesOnly) {
  constexpr std::uint64_t kMoves = 4 * History::kMostMoves;
  std::size_t longest = 0;
  {
    History history(path);
    for (std::uint64_t id = 1; id <= kMoves; ++id) {
      history.begin(a_move(id));
      end(history, id);
      longest = std::max<std::size_t>(longest, std::filesystem::file_size(path));
    }
    ASSERT_EQ(history.moves().size(), History::kMostMoves);
    EXPECT_EQ(history.moves().front().move_id(), kMoves - History::kMostMoves + 1);
  }
  const auto found = ids();
  ASSERT_EQ(found.size(), History::kMostMoves);
  EXPECT_EQ(found.back(), kMoves);
  EXPECT_LT(longest, 4u << 20);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST_F(HistoryTest, NoUserPushesOutTheMovesOfOthers) {
  {
    History history(path);
    history.begin(a_move(1));
    for (std::uint64_t id = 2; id < 2 * History::kMostMoves; ++id) {
      auto theirs = a_move(id);
      theirs.set_owner(1000);
      history.begin(theirs);
    }
    EXPECT_EQ(history.moves().size(), 1 + History::kMostOfUser);
  }
  const auto found = ids();
  ASSERT_EQ(found.size(), 1 + History::kMostOfUser);
  EXPECT_EQ(found.front(), 1u);
  EXPECT_EQ(found.back(), 2 * History::kMostMoves - 1);
}

TEST_F(HistoryTest, WhatOthersSayIsBounded) {
  History history(path);
  history.begin(a_move(1, "a\nb\x1b[31m" + std::string(10000, 'c')));
  end(history, 1, "\x07reason " + std::string(499 - 8, 'x') + "\xc3\xb6" + std::string(5000, 'y'));
  const auto move = History(path).moves().at(0);
  EXPECT_EQ(move.program(), "a");
  EXPECT_EQ(move.reason().size(), History::kMostReason);
  EXPECT_TRUE(move.reason().starts_with("?reason x"));
  EXPECT_TRUE(move.reason().ends_with("x?"));
}

TEST_F(HistoryTest, AFileThatCannotBeWrittenStopsNobody) {
  History history(path);
  history.begin(a_move(1));
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, full{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  full = before;
  full.rlim_cur = std::filesystem::file_size(path) + 20;
  ::setrlimit(RLIMIT_FSIZE, &full);
  history.begin(a_move(2));
  end(history, 1);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old);
  EXPECT_EQ(history.moves().size(), 2u);
  history.begin(a_move(3));
  EXPECT_EQ(ids(), (std::vector<std::uint64_t>{1, 3}));
  // No file at all.
  History nowhere(folder.path("no/such/folder"));
  nowhere.begin(a_move(1));
  end(nowhere, 1);
  EXPECT_EQ(nowhere.moves().at(0).outcome(), "moved");
}

TEST_F(HistoryTest, KnowsWithWhichMoveAProgramHasLeft) {
  History history(path);
  std::uint64_t id = 0;
  const auto add = [&](const std::string& direction, const char* outcome,
                       const std::string& kind = "move") {
    auto move = a_move(++id);
    move.set_direction(direction);
    move.set_kind(kind);
    history.begin(move);
    const Side side = direction == "out" ? Side::kSource : Side::kDestination;
    if (outcome == nullptr) return;
    history.end(id, side, [&](v1::PastMove& past) { past.set_outcome(outcome); });
  };
  const auto left_with = [&] {
    const auto move = history.departure("p", 0);
    return move ? move->move_id() : 0;
  };
  EXPECT_EQ(left_with(), 0u);
  add("out", "failed");
  EXPECT_EQ(left_with(), 0u);
  add("out", nullptr);
  EXPECT_EQ(left_with(), id);
  add("out", "moved");
  EXPECT_EQ(left_with(), id);
  EXPECT_FALSE(history.departure("q", 0));
  const std::uint64_t left = id;
  for (const char* outcome : {"failed", "aborted", "lost"}) add("in", outcome);
  add("in", nullptr);
  EXPECT_EQ(left_with(), left);  // none of these has arrived
  add("in", "moved");
  EXPECT_EQ(left_with(), 0u);
  for (const char* outcome : {"moved", "lost", "moved", "aborted"}) {
    add("out", outcome);
    EXPECT_EQ(left_with(), outcome == std::string("moved") ? id : 0) << outcome;
  }
  // Of checkpoints, those that others have restored.
  add("out", nullptr, "checkpoint");
  EXPECT_EQ(left_with(), 0u);
  add("out", "returned", "checkpoint");
  EXPECT_EQ(left_with(), 0u);
  add("out", "moved", "checkpoint");
  EXPECT_EQ(left_with(), id);
}

TEST_F(HistoryTest, ADepartureIsFoundByANameOfAnyLength) {
  History history(path);
  const std::string name(1000, 'n');
  history.begin(a_move(1, name));
  end(history, 1);
  EXPECT_TRUE(history.departure(name, 0));
  EXPECT_FALSE(history.departure("n", 0));
}

TEST_F(HistoryTest, WhatAFerrydHasForgottenHasFailed) {
  {
    History history(path);
    MoveCounters counters;
    Accounts accounts(history, counters);
    for (const std::uint64_t id : {1, 2}) accounts.begun(Side::kSource, a_move(id));
    accounts.begun(Side::kDestination, a_move(1));
  }
  History history(path);
  MoveCounters counters;
  Accounts accounts(history, counters);
  accounts.end_forgotten(
      [](Side side, std::uint64_t id) { return side == Side::kSource && id == 1; });
  ASSERT_EQ(history.under_way().size(), 1u);
  EXPECT_EQ(history.under_way()[0].move_id(), 1u);
  EXPECT_EQ(history.under_way()[0].direction(), "out");
  EXPECT_EQ(history.moves()[1].reason(), kFerrydEnded);
  EXPECT_FALSE(history.moves()[1].ended().empty());
}

TEST_F(HistoryTest, IsCounted) {
  History history(path);
  MoveCounters counters;
  Accounts accounts(history, counters);
  v1::MoveReport parts;
  parts.set_blackout_ms(250);
  parts.set_image_bytes(1000);
  for (const std::uint64_t id : {1, 2, 3, 4}) accounts.begun(Side::kSource, a_move(id));
  accounts.begun(Side::kDestination, a_move(5));
  accounts.ended(Side::kSource, 1, {MoveOutcome::kMoved, {}, {}, {}, {}, &parts});
  parts.set_blackout_ms(90000);
  accounts.ended(Side::kSource, 2, {MoveOutcome::kMoved, {}, {}, {}, {}, &parts});
  accounts.ended(Side::kSource, 3, {MoveOutcome::kFailed, "restore", "why", {}, {}, &parts});
  accounts.ended(Side::kSource, 3, {MoveOutcome::kFailed, "restore", "why", {}, {}, &parts});
  accounts.ended(Side::kDestination, 5, {MoveOutcome::kMoved, {}, {}, {}, {}, &parts});
  const auto counts = counters.counts();
  EXPECT_EQ(counts.begun.at("out"), 4u);
  EXPECT_EQ(counts.ended.at({"out", "moved"}), 2u);
  EXPECT_EQ(counts.ended.at({"out", "failed"}), 1u);
  EXPECT_EQ(counts.failed.at({"out", "restore"}), 1u);
  EXPECT_EQ(counts.sent_bytes, 3000u);
  EXPECT_EQ(counts.received_bytes, 1000u);
  EXPECT_EQ(counts.blackout_count, 2u);
  EXPECT_DOUBLE_EQ(counts.blackout_seconds, 90.25);
  EXPECT_EQ(counts.blackouts[4], 1u);  // up to 0.25 s, and not the one of 90 s
}

}  // namespace
}  // namespace ferry::host
