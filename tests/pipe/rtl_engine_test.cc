// PD Stack against a host that holds it up, answers in any order and has memory that is gone: each byte is where it
// belongs, and no other is touched. A seed is a run: FERRY_PIPE_SEED=N runs it alone.

#include "pipe/engine/rtl_engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::pipe {
namespace {

constexpr std::size_t kPage = 4096;

// Memory of which the pages from `good` on are gone.
class Memory {
 public:
  Memory(std::size_t pages, std::size_t good)
      : size_(pages * kPage), file_(::memfd_create("memory", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), static_cast<off_t>(good * kPage)), 0);
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(base_, size_); }
  std::byte* at(std::size_t offset) const { return base_ + offset; }

 private:
  const std::size_t size_;
  const UniqueFd file_;
  std::byte* base_;
};

RtlEngine::Settings hard_times(unsigned seed) {
  RtlEngine::Settings settings;
  settings.queues = seed % 3 == 0 ? 1 : PdStackModel::kQueues;
  settings.cycles_per_reap = seed % 2 == 0 ? 0 : 1 + seed * 53 % 300;
  settings.model.seed = seed;
  settings.model.stalls = seed % 5 * 20;
  settings.model.jitter = seed % 4 * 150;
  settings.model.shuffled = seed % 2 == 0;
  return settings;
}

class Trial {
 public:
  static constexpr std::size_t kPages = 128, kGood = 112, kSize = kPages * kPage,
                               kGoodSize = kGood * kPage;

  explicit Trial(unsigned seed) : random_(seed), engine_(hard_times(seed)) {
    for (std::size_t at = 0; at < kGoodSize; ++at) {
      *source_.at(at) = static_cast<std::byte>(random_());
      *destination_.at(at) = expected_[at] = static_cast<std::byte>(random_());
    }
  }

  void run() {
    // One after the other in the destination, with gaps; beyond kGoodSize they fail.
    std::size_t at = 0;
    while (true) {
      at += random_() % 100;
      const std::size_t length = any_length();
      if (at + length > kSize) break;
      add(random_() % (kSize - length), at, length);
      at += length;
    }
    std::size_t submitted = 0, done = 0;
    for (int turn = 0; done < entries_.size() && turn < 100'000; ++turn) {
      const std::size_t most = std::min<std::size_t>(random_() % 40, entries_.size() - submitted);
      submitted += engine_.submit({entries_.data() + submitted, most});
      done += take(1 + random_() % 40);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(done, entries_.size());
    EXPECT_TRUE(engine_.is_idle());
    for (std::size_t byte = 0; byte < kGoodSize; ++byte) {
      if (undefined_[byte]) continue;
      ASSERT_EQ(*destination_.at(byte), expected_[byte]) << "byte " << byte;
    }
  }

  std::size_t overtaken() const { return overtaken_; }
  std::size_t failed() const { return failed_; }

 private:
  std::size_t any_length() {
    switch (random_() % 4) {
      case 0: return 1 + random_() % 130;
      case 1: return 4096 - random_() % 130;
      case 2: return 64 * (1 + random_() % 64);
      default: return 1 + random_() % 4096;
    }
  }

  void add(std::size_t from, std::size_t to, std::size_t length) {
    Entry entry;
    entry.type = EntryType::kSend;
    entry.source = reinterpret_cast<std::uint64_t>(source_.at(from));
    entry.destination = reinterpret_cast<std::uint64_t>(destination_.at(to));
    entry.length = encoded_length(static_cast<std::uint32_t>(length));
    entry.container = static_cast<std::uint16_t>(random_());
    entry.connection = static_cast<std::uint16_t>(random_());
    entry.table = random_() % 2 == 0 ? Table::kSend : Table::kReceive;
    entry.generation = static_cast<std::uint32_t>(random_());
    entry.sequence = static_cast<std::uint16_t>(entries_.size());
    entry.flags = static_cast<std::uint16_t>(random_());
    const bool fails = from + length > kGoodSize || to + length > kGoodSize;
    for (std::size_t byte = to; byte < std::min(to + length, kGoodSize); ++byte) {
      undefined_[byte] = fails;
      if (!fails) expected_[byte] = *source_.at(from + byte - to);
    }
    entries_.push_back(entry);
    fails_.push_back(fails);
    is_done_.push_back(false);
  }

  std::size_t take(std::size_t most) {
    std::vector<Entry> done(most);
    const std::size_t count = engine_.reap(done);
    for (std::size_t index = 0; index < count; ++index) {
      const std::uint16_t number = done[index].sequence;
      if (number >= entries_.size() || is_done_[number]) {
        ADD_FAILURE() << "entry " << number << " comes unasked or twice";
        return count;
      }
      is_done_[number] = true;
      Entry expected = entries_[number];
      expected.type = fails_[number] ? EntryType::kFailed : EntryType::kCompleted;
      EXPECT_EQ(std::memcmp(&done[index], &expected, sizeof expected), 0) << "entry " << number;
      if (number < last_) ++overtaken_;
      last_ = number;
      failed_ += fails_[number];
    }
    return count;
  }

  std::minstd_rand random_;
  RtlEngine engine_;
  Memory source_{kPages, kGood}, destination_{kPages, kGood};
  std::vector<std::byte> expected_ = std::vector<std::byte>(kSize);
  std::vector<bool> undefined_ = std::vector<bool>(kSize), fails_, is_done_;
  std::vector<Entry> entries_;
  std::size_t overtaken_ = 0, failed_ = 0;
  std::uint16_t last_ = 0;
};

TEST(RtlEngineTest, EachByteIsWhereItBelongs) {
  const char* only = ::getenv("FERRY_PIPE_SEED");
  const unsigned first = only ? static_cast<unsigned>(std::atoi(only)) : 1, count = only ? 1 : 30;
  std::size_t overtaken = 0, failed = 0;
  for (unsigned seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FERRY_PIPE_SEED=" + std::to_string(seed));
    Trial trial(seed);
    trial.run();
    overtaken += trial.overtaken();
    failed += trial.failed();
    if (HasFailure()) return;
  }
  if (only) return;
  EXPECT_GT(overtaken, 300U) << "completions come in order";
  EXPECT_GT(failed, 300U) << "no memory is gone";
}

class Entries {
 public:
  explicit Entries(std::size_t length)
      : length_(length), pages_(length / kPage + 1), from_(pages_, pages_), to_(pages_, pages_) {
    std::memset(from_.at(0), 7, length);
  }
  Entry entry(std::size_t at, std::size_t length) {
    Entry entry;
    entry.type = EntryType::kSend;
    entry.source = reinterpret_cast<std::uint64_t>(from_.at(at));
    entry.destination = reinterpret_cast<std::uint64_t>(to_.at(at));
    entry.length = encoded_length(static_cast<std::uint32_t>(length));
    return entry;
  }
  bool is_copied(std::size_t at) const { return *to_.at(at) == *from_.at(at); }
  bool is_untouched() const {
    return std::all_of(to_.at(0), to_.at(length_),
                       [](std::byte byte) { return byte == std::byte{}; });
  }

 private:
  const std::size_t length_, pages_;
  const Memory from_, to_;
};

TEST(RtlEngineTest, WhatIsNoCopyOfUpTo4KiBFails) {
  RtlEngine engine;
  Entries memory(65536);
  std::vector<Entry> bad{memory.entry(0, 4097), memory.entry(0, 65536), memory.entry(0, 65535)};
  for (const unsigned type : {0U, 2U, 3U, 4U, 255U}) {
    bad.push_back(memory.entry(0, 64));
    bad.back().type = static_cast<EntryType>(type);
  }
  ASSERT_EQ(engine.submit(bad), bad.size());
  std::vector<Entry> done(bad.size());
  ASSERT_EQ(engine.reap(done), bad.size());
  for (const Entry& entry : done) EXPECT_EQ(entry.type, EntryType::kFailed);
  EXPECT_TRUE(memory.is_untouched());
  const Entry good = memory.entry(0, 4096);
  engine.submit({&good, 1});
  ASSERT_EQ(engine.reap(done), 1U);
  EXPECT_EQ(done[0].type, EntryType::kCompleted);
}

// Queues are full, and pointers turn over, more than once.
TEST(RtlEngineTest, AQueueTakesWhatItHolds) {
  for (const unsigned stalls : {0U, 50U}) {
    RtlEngine::Settings settings;
    settings.queues = 1;
    settings.model.stalls = stalls;
    RtlEngine engine(settings);
    constexpr std::size_t kEntries = 5000;
    Entries memory(kEntries);
    std::vector<Entry> entries, done(300);
    for (std::size_t at = 0; at < kEntries; ++at) entries.push_back(memory.entry(at, 1));
    EXPECT_EQ(engine.submit(entries), PdStackModel::kDepth);
    EXPECT_EQ(engine.submit(std::span(entries).subspan(1024)), 0U);
    std::size_t submitted = 1024, reaped = 0;
    while (reaped < kEntries) {
      const std::size_t count = engine.reap(done);
      ASSERT_NE(count, 0U);
      reaped += count;
      submitted += engine.submit(std::span(entries).subspan(submitted));
    }
    EXPECT_EQ(submitted, kEntries);
    for (std::size_t at = 0; at < kEntries; ++at) ASSERT_TRUE(memory.is_copied(at)) << at;
  }
}

TEST(RtlEngineTest, ARunIsTheSameAgain) {
  std::vector<std::uint64_t> cycles;
  for (int turn = 0; turn < 2; ++turn) {
    RtlEngine::Settings settings;
    settings.model = {.seed = 5, .stalls = 30, .jitter = 100, .shuffled = true};
    RtlEngine engine(settings);
    Entries memory(65536 + 64);
    std::vector<Entry> entries, done(16);
    for (std::size_t at = 0; at < 16; ++at) entries.push_back(memory.entry(4096 * at, 4096));
    engine.submit(entries);
    ASSERT_EQ(engine.reap(done), 16U);
    cycles.push_back(engine.cycles());
  }
  EXPECT_EQ(cycles[0], cycles[1]);
}

// No entry is fetched whose completion has no place. Another queue goes on.
TEST(RtlEngineTest, ACompletionQueueThatIsFullIsWaitedFor) {
  constexpr unsigned kDepth = PdStackModel::kDepth, kMore = 100;
  struct alignas(512) Queues {
    Entry submissions[2][kDepth], completions[2][kDepth];
  };
  const auto queues = std::make_unique<Queues>();
  Entries memory(kDepth + kMore + 1);
  PdStackModel model({});
  const auto wait = [&] {
    for (int cycle = 0; cycle < 50'000; ++cycle) model.step();
  };
  const auto completed = [&](unsigned queue) {
    return std::ranges::count(queues->completions[queue], EntryType::kCompleted, &Entry::type);
  };
  model.write_register(PdStackModel::kSubmissionBase,
                       reinterpret_cast<std::uint64_t>(queues->submissions));
  model.write_register(PdStackModel::kCompletionBase,
                       reinterpret_cast<std::uint64_t>(queues->completions));
  for (unsigned at = 0; at < kDepth; ++at) queues->submissions[0][at] = memory.entry(at, 1);
  model.write_register(PdStackModel::kSubmissionTail, kDepth);
  wait();
  EXPECT_EQ(completed(0), kDepth);

  for (unsigned at = 0; at < kMore; ++at) queues->submissions[0][at] = memory.entry(kDepth + at, 1);
  queues->submissions[1][0] = memory.entry(kDepth + kMore, 1);
  model.write_register(PdStackModel::kSubmissionTail, kDepth + kMore);
  model.write_register(PdStackModel::kSubmissionTail + 8, 1);
  wait();
  EXPECT_EQ(completed(1), 1);
  for (unsigned at = 0; at < kMore; ++at) EXPECT_FALSE(memory.is_copied(kDepth + at));

  for (Entry& entry : queues->completions[0]) entry = {};
  model.write_register(PdStackModel::kCompletionHead, kDepth);
  wait();
  EXPECT_EQ(completed(0), kMore);
  for (unsigned at = 0; at < kMore; ++at) EXPECT_TRUE(memory.is_copied(kDepth + at));
}

TEST(RtlEngineTest, ACommandQueueThatIsGoneIsAFault) {
  const Memory memory(1, 0);
  for (const bool submissions : {true, false}) {
    std::vector<Entry> queue(PdStackModel::kDepth);
    Entries copied(64);
    queue[0] = copied.entry(0, 64);
    const auto gone = reinterpret_cast<std::uint64_t>(memory.at(0));
    const auto there = (reinterpret_cast<std::uint64_t>(queue.data()) + 511) / 512 * 512;
    std::memmove(reinterpret_cast<void*>(there), queue.data(), sizeof(Entry));
    PdStackModel model({});
    model.write_register(PdStackModel::kSubmissionBase, submissions ? gone : there);
    model.write_register(PdStackModel::kCompletionBase, submissions ? there : gone);
    model.write_register(PdStackModel::kSubmissionTail, 1);
    for (int cycle = 0; cycle < 2000; ++cycle) {
      model.step();
      EXPECT_FALSE(model.take_interrupt());
    }
    EXPECT_TRUE(model.is_faulty());
    EXPECT_EQ(copied.is_copied(0), !submissions);
  }
}

}  // namespace
}  // namespace ferry::pipe
