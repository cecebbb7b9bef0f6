#include "host/journal/decision_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "port/slot.h"
#include "temporary.h"

namespace ferry::host {
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
  // Nothing is held for it: no record says the same.
  EXPECT_FALSE(again.decision(7, Side::kDestination));
  EXPECT_FALSE(again.decision(0xFEDCBA9876543210, Side::kSource));
  EXPECT_EQ(again.decision(8, Side::kSource), Decision::kConfirmed);
  EXPECT_EQ(again.find(7, Side::kSource)->program, "a b%\n");
  EXPECT_EQ(again.find(8, Side::kSource)->program, "-");
  EXPECT_EQ(again.find(8, Side::kSource)->peer, "[::1]:4780");
  EXPECT_FALSE(again.decision(9, Side::kSource));
}

TEST(DecisionLog, TheLastRecordCounts) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.record(Side::kSource, {Decision::kCommitted, "p", "", {1}});
    log.record(Side::kSource, {Decision::kAborted, "p", "", {1}});
    EXPECT_FALSE(log.decision(1, Side::kSource));
    log.record(Side::kSource, {Decision::kCommitted, "p", "", {2}});
    log.record(Side::kSource, {Decision::kConfirmed, "p", "", {2}});
  }
  EXPECT_FALSE(DecisionLog(folder.path()).decision(1, Side::kSource));
  EXPECT_EQ(DecisionLog(folder.path()).decision(2, Side::kSource), Decision::kConfirmed);
}

// An operator's word that comes when the destination has just answered.
TEST(DecisionLog, WhatIsConfirmedIsNotAbortedAnyMore) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.record(Side::kSource, {Decision::kCommitted, "p", "", {1, 2}});
    log.record(Side::kSource, {Decision::kConfirmed, "p", "", {1, 2}});
    std::string error;
    EXPECT_EQ(log.write(Side::kSource, {Decision::kAborted, "p", "", {1, 2}}, &error),
              Written::kNot);
    EXPECT_NE(error.find("has confirmed it: 'p' is there"), std::string::npos) << error;
    EXPECT_EQ(log.decision(1, Side::kSource), Decision::kConfirmed);
  }
  // A former version has written both.
  std::ofstream(folder.path("decisions"), std::ios::app)
      << Journal::decision(Side::kSource, {Decision::kAborted, "p", "", {1, 2}}) << '\n';
  DecisionLog again(folder.path());
  EXPECT_EQ(again.decision(1, Side::kSource), Decision::kConfirmed);
  EXPECT_EQ(again.decision(2, Side::kSource), Decision::kConfirmed);
}

// A file that took another's place may be found under its name after a crash or not, until the
// folder is on the disk: so long nothing is promised.
TEST(DecisionLog, RecordsNothingInAFileThatMayHaveNoName) {
  Folder folder;
  bool works = true;
  DecisionLog log(folder.path(), [&](const std::string& path) {
    errno = EIO;
    return works && sync_folder(path);
  });
  log.record(Side::kSource, {Decision::kCommitted, "p", "", {1}});
  works = false;
  // Shortened: what is over takes no room.
  for (std::uint64_t id = 100; id < 2000; ++id) {
    log.note(Journal::held(id, Side::kSource, {}));
    log.forget(id, Side::kSource);
  }
  std::string error;
  EXPECT_EQ(log.write(Side::kSource, {Decision::kCommitted, "q", "", {2}}, &error), Written::kNot);
  EXPECT_NE(error.find("cannot sync"), std::string::npos) << error;
  EXPECT_FALSE(DecisionLog(folder.path()).decision(2, Side::kSource));
  works = true;
  log.record(Side::kSource, {Decision::kCommitted, "q", "", {2}});
  EXPECT_EQ(DecisionLog(folder.path()).decision(2, Side::kSource), Decision::kCommitted);
  EXPECT_EQ(DecisionLog(folder.path()).decision(1, Side::kSource), Decision::kCommitted);
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
    log.record(Side::kSource, {Decision::kConfirmed, "p", "", {3}});
    EXPECT_EQ(DecisionLog(folder.path()).decision(3, Side::kSource), Decision::kConfirmed) << size;
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
  log.record(Side::kSource, {Decision::kConfirmed, "p", "", {3}});
  DecisionLog again(folder.path());
  EXPECT_EQ(again.decision(1, Side::kSource), Decision::kCommitted);
  EXPECT_FALSE(again.decision(2, Side::kSource));
  EXPECT_EQ(again.decision(3, Side::kSource), Decision::kConfirmed);
}

Held stopped(std::uint32_t slot, std::size_t qps) {
  rnic::Slot held;
  held.local = held.origin = {port::Address::from_ipv4(0x0A4E0101), port::udp_port_of_slot(slot)};
  held.slot = slot;
  held.entries.assign(qps, std::vector<std::byte>(100, std::byte{0x5E}));
  return {"p",
          "h2@10.77.0.2:4780",
          "/run/netns/p.1",
          "p.1",
          1,
          9,
          7,
          {{10, 8, 0, {2, {{"rdma0", {held}}}}}}};
}

// They hold keys.
TEST(DecisionLog, IsRootsAlone) {
  Folder folder;
  folder.write("decisions", "");
  std::filesystem::permissions(folder.path("decisions"), std::filesystem::perms::all);
  DecisionLog log(folder.path());
  EXPECT_EQ(std::filesystem::status(folder.path("decisions")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(DecisionLog, KeepsNotes) {
  Folder folder;
  {
    DecisionLog log(folder.path());
    log.note(Journal::held(1, Side::kSource, stopped(3, 2)));
  }
  DecisionLog again(folder.path());
  const auto entries = again.entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(
      entries.begin()->second.held->processes.at(0).place.contexts.at(0).slots.at(0).entries.size(),
      2u);
}

TEST(DecisionLog, SaysInOneLineWhatItCannotRead) {
  Folder folder;
  folder.write("decisions", "no line of ours\ntorn");
  testing::internal::CaptureStdout();
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(spdlog::stdout_color_mt("decision_log_test"));
  DecisionLog log(folder.path());
  spdlog::default_logger()->flush();
  spdlog::set_default_logger(logger);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("2 lines of " + folder.path("decisions") + " are torn or damaged"),
            std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  log.record(Side::kSource, {Decision::kConfirmed, "p", "", {1}});
  EXPECT_EQ(DecisionLog(folder.path()).decision(1, Side::kSource), Decision::kConfirmed);
}

// A restart of a checkpoint has the id of the one before, which is over.
TEST(DecisionLog, NothingIsLeftOfAnIdThatIsReused) {
  Folder folder;
  DecisionLog log(folder.path());
  log.note(Journal::held(1, Side::kDestination, stopped(3, 2)));
  log.record(Side::kDestination, {Decision::kCommitted, "p", "", {1}});
  log.over(1, Side::kDestination);
  log.reuse(1, Side::kDestination);
  EXPECT_TRUE(log.entries().empty());
  log.reuse(2, Side::kDestination);  // nothing is known of it
  log.note(Journal::held(1, Side::kDestination, stopped(3, 2)));
  for (const auto& entries : {log.entries(), DecisionLog(folder.path()).entries()}) {
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_FALSE(entries.begin()->second.over);
    EXPECT_EQ(entries.begin()->second.decision(), std::nullopt);
  }
  log.forget_ended_arrival(1);  // who asked for that meant the one before
  EXPECT_EQ(log.entries().size(), 1u);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::string failure = test::failure_of([&] { log.reuse(1, Side::kDestination); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(failure.find("cannot make a record durable in"), std::string::npos);
  EXPECT_EQ(log.entries().size(), 1u);
}

// One that is stopped, and goes on where it was because that cannot be written down.
TEST(DecisionLog, AFullDiskTakesNoNote) {
  Folder folder;
  DecisionLog log(folder.path());
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::string failure =
      test::failure_of([&] { log.note(Journal::held(1, Side::kSource, stopped(3, 2))); });
  log.over(1, Side::kSource);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(failure.find("cannot make a record durable in"), std::string::npos);
  EXPECT_TRUE(log.entries().empty());
  EXPECT_TRUE(DecisionLog(folder.path()).entries().empty());
}

// A thousand moves, of which the last ten are not over: on both sides, and of one RNIC the origin
// is kept.
TEST(DecisionLog, DoesNotGrowWithWhatIsOver) {
  Folder folder;
  std::map<Journal::Key, Journal::Entry> before;
  constexpr std::size_t kMost = 3 * DecisionLog::kCompactAbove;
  {
    DecisionLog log(folder.path());
    for (std::uint64_t move = 1; move <= 1000; ++move) {
      Held held = stopped(static_cast<std::uint32_t>(move % 900) + 1, 10);
      if (move > 1) held.processes[0].place.contexts[0].slots[0].origin = {};
      Held arrived = held;
      arrived.netns = "/run/netns/arrived";  // no two have one slot
      ProcessSlots there = held.processes[0].place;
      there.contexts[0].slots[0].local.address = port::Address::from_ipv4(0x0A4E0202);
      log.note(Journal::held(move, Side::kSource, held));
      log.note(Journal::going(move, {"h2", {there}}));
      log.record(Side::kSource, {Decision::kCommitted, "p", held.peer, {move}});
      log.record(Side::kSource, {Decision::kConfirmed, "p", "", {move}});
      log.note(Journal::since(move, stamp_now()));
      log.note(Journal::held(move + 5000, Side::kDestination, arrived));
      log.record(Side::kDestination, {Decision::kCommitted, "p", "", {move + 5000}});
      if (move <= 10) continue;
      log.note(Journal::left(move - 10, stamp_now()));
      log.over(move - 10, Side::kSource);
      log.over(move - 10 + 5000, Side::kDestination);
      EXPECT_EQ(log.ended_arrivals().size(), 1u);
      log.forget(move - 10 + 5000, Side::kDestination);
      ASSERT_LT(std::filesystem::file_size(folder.path("decisions")), kMost) << move;
    }
    before = log.entries();
  }
  EXPECT_EQ(before.size(), 21u);
  DecisionLog again(folder.path());
  const auto after = again.entries();
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [key, entry] : before) {
    EXPECT_EQ(after.at(key).notes, entry.notes);
    EXPECT_EQ(after.at(key).decision(), entry.decision());
    EXPECT_EQ(after.at(key).origins, entry.origins);
  }
  const auto& first = after.at({1, Side::kSource});
  EXPECT_TRUE(first.over);
  EXPECT_EQ(first.origins.size(), 1u);
  again.freed(1, first.origins.begin()->first);
  EXPECT_EQ(again.entries().size(), 20u);
}

TEST(DecisionLog, NeedsAFolder) {
  EXPECT_NE(test::failure_of([] { DecisionLog("/proc/ferry"); }).find("cannot make /proc/ferry"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::host
