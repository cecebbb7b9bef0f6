#include "host/image/late_pages.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

// Memory of this process is late.
struct LatePagesTest : testing::Test {
  LatePagesTest() {
    host.state_directory = folder.path();
    host.pages_helper = "/bin/false";
    std::filesystem::create_directory(folder.path("late-pages"));
  }

  // As ferry-pages has it while it works.
  UniqueFd locked() const {
    UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    return lock;
  }
  // Gives an empty string, or why it cannot be moved.
  std::string wait(
      milliseconds limit, const std::function<void()>& go_on = [] {}) const {
    try {
      LatePages(host).wait("job", ::getpid(), std::chrono::steady_clock::now() + limit, go_on);
      return {};
    } catch (const Failure& failure) {
      return failure.what();
    }
  }
  bool is_there() const { return std::filesystem::exists(path); }

  const test::Folder folder;
  ThisHost host;
  const std::string path =
      fmt::format("{}/late-pages/{}-{}", folder.path(), ::getpid(), start_time(::getpid()));
};

TEST_F(LatePagesTest, AProgramWithAllOfItsMemoryIsNotWaitedFor) {
  EXPECT_EQ(wait({}), "");
}

TEST_F(LatePagesTest, AProgramIsWaitedForUntilItHasAllOfItsMemory) {
  UniqueFd lock = locked();
  std::thread filling([&] {
    std::this_thread::sleep_for(milliseconds(20));
    ::unlink(path.c_str());
    lock.reset();
  });
  EXPECT_EQ(wait(std::chrono::minutes(5)), "");
  EXPECT_FALSE(is_there());
  filling.join();
}

TEST_F(LatePagesTest, AProgramWhoseMemoryDoesNotComeIsNotMoved) {
  const UniqueFd lock = locked();
  EXPECT_EQ(wait(milliseconds(10)), "the memory of 'job' is still being filled in; try again");
  EXPECT_TRUE(is_there());
}

TEST_F(LatePagesTest, WhoeverIsNotToMoveAnyMoreDoesNotWait) {
  const UniqueFd lock = locked();
  EXPECT_EQ(wait(std::chrono::minutes(5), [] { throw Failure("given up"); }), "given up");
}

TEST_F(LatePagesTest, AProgramThatHasLostMemoryIsNotMoved) {
  locked().reset();  // and nobody has removed it
  EXPECT_NE(wait(std::chrono::minutes(5)).find("'job' has lost memory"), std::string::npos);
  LatePages(host).tidy();
  EXPECT_TRUE(is_there());
}

TEST_F(LatePagesTest, WhatIsLeftOfAProgramThatHasEndedIsRemoved) {
  const std::string ended = folder.path("late-pages/1-1"), works = folder.path("late-pages/2-1");
  folder.write("late-pages/1-1", {});
  const UniqueFd lock(::open(works.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  LatePages(host).tidy();
  EXPECT_FALSE(std::filesystem::exists(ended));
  EXPECT_TRUE(std::filesystem::exists(works));
}

TEST_F(LatePagesTest, AFerryPagesThatCannotStartLeavesNothing) {
  EXPECT_THROW(LatePages(host).hand_over(::getpid(), {}, {}, precopy::PageStore(1 << 20)), Failure);
  EXPECT_FALSE(is_there());
}

}  // namespace
}  // namespace ferry::host
