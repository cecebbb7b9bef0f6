#include "store/verdict.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "made.h"
#include "temporary.h"

// Of hosts that ask the store how something is decided, all get the same answer.
namespace ferry::store {
namespace {

using ferry::test::failure_of;
using test::kId;

class Verdicts : public ::testing::Test {
 protected:
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  // What a host that takes part would do.
  bool goes_on(std::uint64_t attempt = 7) const { return of(attempt).goes_on(); }
  Verdict of(std::uint64_t attempt) const { return {folder_.path(), kId, attempt}; }

  const ferry::test::Folder folder_;
};

TEST_F(Verdicts, ThatProgramsGoOnHoldsForWhoAsksLater) {
  const Verdict verdict = of(7);
  verdict.open();
  EXPECT_EQ(names(), std::set<std::string>{"00000000000000aa.restart-0000000000000007"});
  EXPECT_TRUE(verdict.go_on());
  EXPECT_EQ(names(), std::set<std::string>{"00000000000000aa.restart-0000000000000007.goes-on"});
  EXPECT_TRUE(goes_on());
  EXPECT_TRUE(goes_on());
  EXPECT_TRUE(verdict.go_on()) << "as when the first answer of NFS was lost";
  verdict.forget();
  EXPECT_EQ(names(), std::set<std::string>());
}

TEST_F(Verdicts, WhoAsksFirstGivesTheAttemptUp) {
  const Verdict verdict = of(7);
  verdict.open();
  EXPECT_FALSE(goes_on());
  EXPECT_FALSE(verdict.go_on());
  EXPECT_FALSE(goes_on());
  EXPECT_EQ(names(), std::set<std::string>());
}

TEST_F(Verdicts, OfAnAttemptThatWasNeverOpenIsThatItIsGivenUp) {
  EXPECT_FALSE(goes_on());
  EXPECT_FALSE(of(7).go_on());
}

TEST_F(Verdicts, ThatOfTwoWhoAskAtOnceIsOne) {
  constexpr int kAttempts = 300, kHosts = 3;
  int going = 0;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    of(attempt).open();
    bool decided = false;
    bool answers[kHosts] = {};
    {
      std::vector<std::jthread> threads;
      threads.emplace_back([&] { decided = of(attempt).go_on(); });
      for (bool& answer : answers) {
        threads.emplace_back([&, attempt] { answer = goes_on(attempt); });
      }
    }
    for (const bool answer : answers) ASSERT_EQ(answer, decided) << attempt;
    going += decided ? 1 : 0;
  }
  RecordProperty("going", going);
}

TEST_F(Verdicts, OfFormerAttemptsAreTakenAwayByTheNext) {
  of(7).open();
  of(7).go_on();
  folder_.write("00000000000000bb.restart-0000000000000007.goes-on", "");  // of another checkpoint
  of(8).open();
  EXPECT_EQ(names(), (std::set<std::string>{"00000000000000aa.restart-0000000000000008",
                                            "00000000000000bb.restart-0000000000000007.goes-on"}));
}

TEST_F(Verdicts, GoWithTheirCheckpoint) {
  test::make(folder_.path(), kId, {{{"a", "text"}}}, kShardBytes);
  of(7).open();
  EXPECT_EQ(Store(folder_.path()).list().size(), 1u) << "a verdict is no checkpoint";
  Store(folder_.path()).remove(kId);
  EXPECT_EQ(names(), std::set<std::string>());
}

TEST_F(Verdicts, AreNotKnownWhereAFolderIsInTheWay) {
  const std::string file = folder_.path("00000000000000aa.restart-0000000000000007");
  std::filesystem::create_directory(file);
  EXPECT_EQ(failure_of([&] { goes_on(); }), "cannot delete " + file + ": Is a directory");
  std::filesystem::create_directories(file + ".goes-on/in-the-way");
  EXPECT_EQ(failure_of([&] { of(7).go_on(); }), "cannot rename " + file + ": Directory not empty");
}

TEST_F(Verdicts, AreOfTheFolderThatWasThere) {
  const ferry::test::Folder other;
  const std::string path = other.path("store");
  std::filesystem::create_directory(path);
  const Verdict verdict(path, kId, 7);
  verdict.open();
  ASSERT_TRUE(verdict.go_on());
  std::filesystem::rename(path,
                          other.path("elsewhere"));  // as when another one is mounted above it
  std::filesystem::create_directory(path);
  EXPECT_TRUE(verdict.goes_on());
}

TEST_F(Verdicts, NeedTheIdOfACheckpoint) {
  EXPECT_EQ(failure_of([&] { Verdict(folder_.path(), "../x", 7); }),
            "'../x' is no id of a checkpoint");
  EXPECT_EQ(failure_of([&] { Completion(folder_.path(), "../x"); }),
            "'../x' is no id of a checkpoint");
}

TEST_F(Verdicts, ACheckpointThatIsCompleteStaysSo) {
  const Completion completion(folder_.path(), kId);
  test::make(folder_.path(), kId, {{{"a", "text"}}}, kShardBytes);
  EXPECT_TRUE(completion.is_complete());
  EXPECT_TRUE(completion.is_complete());
  Store(folder_.path()).open(kId).verify();
}

TEST_F(Verdicts, ACheckpointThatIsGivenUpCannotBeCompleted) {
  NewCheckpoint fresh(folder_.path(), kId);
  NewImages written(folder_.path(), kId, 0, kShardBytes);
  const auto program = test::write_image(written.add(), {{"a", "text"}}, test::program("p"));
  const Completion completion(folder_.path(), kId);
  EXPECT_FALSE(completion.is_complete());
  EXPECT_EQ(names(), std::set<std::string>()) << "nothing is left of it";
  EXPECT_EQ(failure_of([&] { fresh.complete("1.2.3", {program}); }),
            folder_.path() +
                "/00000000000000aa.partial/0000-000000.zst of 'p', which h1 has "
                "written, is not there as it was written");
  EXPECT_FALSE(completion.is_complete());
}

TEST_F(Verdicts, ACheckpointIsCompleteAlsoWhenThatAnswerIsLost) {
  NewCheckpoint fresh(folder_.path(), kId);
  NewImages written(folder_.path(), kId, 0, kShardBytes);
  const auto program = test::write_image(written.add(), {{"a", "text"}}, test::program("p"));
  // NFS has renamed the folder when the client asks it for that once more.
  std::filesystem::rename(partial_path(folder_.path(), kId), folder_.path(kId));
  EXPECT_EQ(fresh.complete("1.2.3", {program}).id, kId);
  EXPECT_TRUE(Completion(folder_.path(), kId).is_complete());
  Store(folder_.path()).open(kId).verify();
}

}  // namespace
}  // namespace ferry::store
