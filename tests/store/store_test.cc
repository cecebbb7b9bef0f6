#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "made.h"
#include "temporary.h"

namespace ferry::store {
namespace {

using ferry::test::failure_of;
using ferry::test::Folder;
using test::Files;
using test::kId;
using test::kOther;
using test::make;
using test::noise;
using test::read;
using ::testing::HasSubstr;

std::vector<std::string> ids(const std::string& directory) {
  std::vector<std::string> ids;
  for (const auto& entry : Store(directory).list()) ids.push_back(entry.id);
  return ids;
}

TEST(Store, GivesBackWhatWasWritten) {
  const Folder folder;
  const Files first{{"core-1.img", "abc"}, {"empty", ""}, {"pages-1.img", noise(10000, 1)}};
  const Files second{{"core-1.img", std::string(5000, 'x')}};
  const Manifest made = make(folder.path(), kId, {first, second}, 4096);
  EXPECT_EQ(made.content(), 15003u);
  EXPECT_EQ(made.programs[0].shards.size(), 3u);
  const Checkpoint checkpoint = Store(folder.path()).open(kId);
  EXPECT_EQ(checkpoint.manifest(), made);
  EXPECT_EQ(read(checkpoint, 0), first);
  EXPECT_EQ(read(checkpoint, 1), second);
  checkpoint.verify();
}

TEST(Store, AnImageMayBeEmpty) {
  const Folder folder;
  const Files none, empty{{"a", ""}, {"b", ""}};
  make(folder.path(), kId, {none, empty}, 4096);
  const Checkpoint checkpoint = Store(folder.path()).open(kId);
  EXPECT_EQ(read(checkpoint, 0), none);
  EXPECT_EQ(read(checkpoint, 1), empty);
  checkpoint.verify();
}

// Each length around the end of a shard, and of the buffers of zstd.
TEST(Store, FilesEndAnywhereInShards) {
  const Folder folder;
  for (const std::size_t size : {1u, 4095u, 4096u, 4097u, 131071u, 131072u, 131073u, 262144u}) {
    const Files files{{"a", noise(size, 2)}, {"b", std::string(size, 'b')}, {"c", "c"}};
    make(folder.path(), kId, {files}, 131072);
    const Checkpoint checkpoint = Store(folder.path()).open(kId);
    EXPECT_EQ(read(checkpoint, 0), files) << size;
    checkpoint.verify();
    Store(folder.path()).remove(kId);
  }
}

// A checkpoint that has files of another one does without that one.
TEST(Store, FilesOfAnotherCheckpointAreNotWrittenAgain) {
  const Folder folder;
  const std::string large = noise(10'000, 1), small = noise(500, 2);
  {
    NewCheckpoint fresh(folder.path(), kId);
    NewImages images(folder.path(), kId, 0, 4096);
    ImageWriter& writer = images.add();
    for (const auto& [name, content] : Files{{"large", large}, {"small", small}, {"more", "m"}}) {
      writer.begin_file(name, 0640);
      writer.write(test::bytes_of(content));
      if (name == "large") writer.end_shard();
    }
    Program program = test::program("p");
    writer.end(&program);
    fresh.complete("1", {program});
  }
  std::uint64_t written = 0;
  {
    const Checkpoint former = Store(folder.path()).open(kId);
    written = former.manifest().written();
    NewCheckpoint fresh(folder.path(), kOther);
    NewImages images(folder.path(), kOther, 0, 4096);
    ImageWriter& writer = images.add();
    EXPECT_FALSE(writer.link_file("s", former, 0, 1)) << "it shares a shard";
    writer.begin_file("before", 0600);
    writer.write(test::bytes_of("b"));
    EXPECT_TRUE(writer.link_file("l", former, 0, 0));
    writer.begin_file("behind", 0600);
    writer.write(test::bytes_of("a"));
    Program program = test::program("p");
    writer.end(&program);
    EXPECT_EQ(program.shards.size(), 5u);
    fresh.complete("1", {program});
  }
  Store(folder.path()).remove(kId);
  const Checkpoint checkpoint = Store(folder.path()).open(kOther);
  checkpoint.verify();
  EXPECT_EQ(read(checkpoint, 0), (Files{{"before", "b"}, {"l", large}, {"behind", "a"}}));
  EXPECT_EQ(checkpoint.manifest().programs[0].files[1].mode, 0640u);
  EXPECT_LT(checkpoint.manifest().written(), 100u);
  EXPECT_GT(checkpoint.manifest().stored(), written - 600);
  std::string one;
  checkpoint.read_file(0, 1, [&](std::span<const std::byte> piece) {
    one.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  EXPECT_EQ(one, large);
  for (const auto& shard : checkpoint.manifest().programs[0].shards) {
    EXPECT_TRUE(shard.from.empty() || shard.from == kId) << shard.from;
  }
}

// The shards that were linked before one could not be are taken back.
TEST(Store, WhatCannotBeLinkedIsNotAdded) {
  const Folder folder;
  make(folder.path(), kId, {{{"a", noise(10'000, 1)}}}, 4096);
  const Checkpoint former = Store(folder.path()).open(kId);
  const std::string last = std::string(kId) + "/0000-000002.zst";
  NewCheckpoint fresh(folder.path(), kOther);
  NewImages images(folder.path(), kOther, 0, 4096);
  ImageWriter& writer = images.add();
  const std::string whole = folder.read(last);
  for (const auto& damaged : {whole.substr(1) + whole[0], whole.substr(1), whole + "x"}) {
    folder.write(last, damaged);
    EXPECT_FALSE(writer.link_file("a", former, 0, 0)) << damaged.size();
  }
  std::filesystem::remove(folder.path(last));
  EXPECT_FALSE(writer.link_file("a", former, 0, 0));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path(std::string(kOther) + ".partial")));
  writer.begin_file("b", 0600);
  writer.write(test::bytes_of("b"));
  Program program = test::program("p");
  writer.end(&program);
  fresh.complete("1", {program});
  EXPECT_EQ(read(Store(folder.path()).open(kOther), 0), (Files{{"b", "b"}}));
}

TEST(Store, NobodyElseMayRead) {
  const Folder folder;
  const mode_t mask = ::umask(0);
  make(folder.path(), kId, {{{"a", "secret"}}}, 4096);
  ::umask(mask);
  struct stat facts {};
  ASSERT_EQ(::stat(folder.path(kId).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  for (const auto& file : std::filesystem::directory_iterator(folder.path(kId))) {
    ASSERT_EQ(::stat(file.path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777, 0600u) << file.path();
  }
}

TEST(Store, TheLatestIsTheLast) {
  const Folder folder;
  for (const char* id : {"00000000000000cc", "00000000000000aa", "00000000000000bb"}) {
    make(folder.path(), id, {{{"a", "a"}}}, 4096);
  }
  folder.write("notes.txt", "of somebody else");
  EXPECT_EQ(ids(folder.path()),
            (std::vector<std::string>{"00000000000000cc", "00000000000000aa", "00000000000000bb"}));
}

// A clock that was ahead, by eight thousand years.
TEST(Store, TheLatestIsTheLastWhateverTheClockSays) {
  const Folder folder;
  const Manifest ahead{kOther, "9998-12-31T23:59:59.999Z", "1", {test::program("p")}, {}};
  std::filesystem::create_directory(folder.path(kOther));
  folder.write(std::string(kOther) + "/manifest.json", to_text(ahead));
  EXPECT_EQ(make(folder.path(), kId, {{{"a", "a"}}}, 4096).made, "9999-01-01T00:00:00.000Z");
  EXPECT_EQ(ids(folder.path()), (std::vector<std::string>{kOther, kId}));
}

TEST(Store, WhatIsNotCompleteIsNoCheckpoint) {
  const Folder folder;
  {
    NewCheckpoint fresh(folder.path(), kId);
    test::write_image(NewImages(folder.path(), kId, 0).add(), {{"a", "a"}}, test::program("p"));
    const auto entries = Store(folder.path()).list();
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_TRUE(entries[0].is_partial);
    EXPECT_FALSE(entries[0].manifest);
    EXPECT_EQ(entries[0].problem, folder.path(kId) + ".partial is not complete");
    EXPECT_THAT(failure_of([&] { Store(folder.path()).open(kId); }),
                HasSubstr("has no complete checkpoint '00000000000000aa'"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Another host may have written to a directory of the same name.
TEST(Store, WithoutAShardItIsNotCompleted) {
  const Folder folder;
  NewCheckpoint fresh(folder.path(), kId);
  const auto written =
      test::write_image(NewImages(folder.path(), kId, 3).add(), {{"a", "a"}}, test::program("p"));
  const std::string shard = folder.path(std::string(kId) + ".partial/0003-000000.zst");
  const std::string missing =
      shard + " of 'p', which h1 has written, is not there as it was written";
  EXPECT_EQ(failure_of([&] {
              fresh.complete("1", {written, written});
            }),
            missing);  // one of both is another's
  std::filesystem::resize_file(shard, written.shards.at(0).stored - 1);
  EXPECT_EQ(failure_of([&] { fresh.complete("1", {written}); }), missing);
  std::filesystem::remove(shard);
  EXPECT_EQ(failure_of([&] { fresh.complete("1", {written}); }), missing);
  std::filesystem::create_symlink("/etc/hostname", shard);
  EXPECT_EQ(failure_of([&] { fresh.complete("1", {written}); }), missing);
}

TEST(Store, ImagesBelongToACheckpointThatHasBegun) {
  const Folder folder;
  EXPECT_EQ(failure_of([&] { NewImages(folder.path(), kId, 0); }),
            "cannot read " + folder.path(kId) + ".partial: No such file or directory");
  EXPECT_EQ(failure_of([&] { NewImages(folder.path(), "../../etc", 0); }),
            "'../../etc' is no id of a checkpoint");
}

// A process that ends in the middle leaves a partial checkpoint, which `rm` deletes.
TEST(Store, WhatAKilledWriterLeavesCanBeDeleted) {
  const Folder folder;
  make(folder.path(), kOther, {{{"a", "a"}}}, 4096);
  const pid_t child = ::fork();
  if (child == 0) {
    NewCheckpoint fresh(folder.path(), kId);
    NewImages images(folder.path(), kId, 0, 4096);
    auto& image = images.add();
    image.begin_file("a", 0600);
    image.write(test::bytes_of(noise(10000, 3)));
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path(std::string(kId) + ".partial")));
  EXPECT_EQ(ids(folder.path()), (std::vector<std::string>{kOther, kId}));
  Store(folder.path()).remove(kId);
  EXPECT_EQ(ids(folder.path()), std::vector<std::string>{kOther});
  Store(folder.path()).open(kOther).verify();
}

TEST(Store, WhatIsBeingWrittenIsNotDeleted) {
  const Folder folder;
  NewCheckpoint fresh(folder.path(), kId);
  EXPECT_EQ(failure_of([&] { Store(folder.path()).remove(kId); }),
            folder.path(kId) + ".partial is being written; wait until that has ended");
  fresh.complete("1", {test::write_image(NewImages(folder.path(), kId, 0).add(), {{"a", "a"}},
                                         test::program("p"))});
  Store(folder.path()).open(kId).verify();
  Store(folder.path()).remove(kId);
  EXPECT_TRUE(ids(folder.path()).empty());
}

TEST(Store, AFullDiskFailsAndLeavesTheOthers) {
  const Folder folder;
  make(folder.path(), kOther, {{{"a", "a"}}}, 4096);
  for (const rlim_t limit : {0u, 1u, 100u, 5000u}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);  // write() gives EFBIG
      const rlimit files{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &files);
      const std::string failure = failure_of([&] {
        make(folder.path(), kId, {{{"a", noise(10000, 4)}}}, 1 << 20);
      });
      ::_exit(failure == "cannot write " + folder.path(kId) +
                             ".partial/0000-000000.zst: " + "File too large"
                  ? 0
                  : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << limit;
    EXPECT_EQ(ids(folder.path()), std::vector<std::string>{kOther}) << limit;
  }
}

TEST(Store, OneAtATimeRestartsIt) {
  const Folder folder;
  make(folder.path(), kId, {{{"a", "a"}}}, 4096);
  const Store store(folder.path());
  {
    auto first = store.open(kId);
    EXPECT_TRUE(first.lock());
    auto second = store.open(kId);
    EXPECT_EQ(failure_of([&] { second.lock(); }),
              "checkpoint 00000000000000aa is being restarted already");
    auto same = std::move(first);
    EXPECT_NE(failure_of([&] { second.lock(); }), "");
  }
  EXPECT_TRUE(store.open(kId).lock());
}

TEST(Store, ARestartIsNotedBesideIt) {
  const Folder folder;
  make(folder.path(), kId, {{{"a", "a"}}}, 4096);
  const Store store(folder.path());
  const auto checkpoint = store.open(kId);
  EXPECT_TRUE(checkpoint.hosts_of_latest_restart().empty());
  checkpoint.note_restart({"h1@10.0.0.1:4780", "h2@10.0.0.2:4780"});
  checkpoint.note_restart({"h3@10.0.0.3:4780"});
  EXPECT_EQ(store.open(kId).hosts_of_latest_restart(),
            std::vector<std::string>{"h3@10.0.0.3:4780"});
  checkpoint.verify();
  EXPECT_EQ(ids(folder.path()), std::vector<std::string>{kId});
  store.remove(kId);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Store, DeletesWholeCheckpoints) {
  const Folder folder;
  make(folder.path(), kId, {{{"a", "a"}}}, 4096);
  make(folder.path(), kOther, {{{"a", "a"}}}, 4096);
  Store(folder.path()).remove(kId);
  EXPECT_EQ(ids(folder.path()), std::vector<std::string>{kOther});
  for (const char* id : {kId, "..", ".", "", "notes", "../x"}) {
    EXPECT_THAT(failure_of([&] { Store(folder.path()).remove(id); }),
                HasSubstr("has no checkpoint"))
        << id;
  }
  EXPECT_EQ(ids(folder.path()), std::vector<std::string>{kOther});
}

TEST(Store, AnIdIsTakenOnce) {
  const Folder folder;
  const NewCheckpoint fresh(folder.path(), kId);
  EXPECT_EQ(failure_of([&] { NewCheckpoint(folder.path(), kId); }),
            "cannot make " + folder.path(kId) + ".partial: File exists");
  EXPECT_EQ(failure_of([&] { NewCheckpoint(folder.path(), "../../etc"); }),
            "'../../etc' is no id of a checkpoint");
}

TEST(Store, ADirectoryThatIsNotThere) {
  const Folder folder;
  const std::string there = folder.path("none");
  EXPECT_EQ(failure_of([&] { Store(there).list(); }),
            "cannot read " + there + ": No such file or directory");
  EXPECT_EQ(failure_of([&] { NewCheckpoint(there, kId); }),
            "cannot make " + there + "/" + kId + ".partial: No such file or directory");
}

}  // namespace
}  // namespace ferry::store
