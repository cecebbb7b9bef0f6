#include "host/image/late_pages.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
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
  bool is_there() const { return std::filesystem::exists(path); }

  const test::Folder folder;
  ThisHost host;
  const std::string path =
      fmt::format("{}/late-pages/{}-{}", folder.path(), ::getpid(), start_time(::getpid()));
};

TEST_F(LatePagesTest, AProgramWithAllOfItsMemoryIsNotWaitedFor) {
  EXPECT_NO_THROW(LatePages(host).wait("job", ::getpid(), milliseconds(0)));
}

TEST_F(LatePagesTest, AProgramIsWaitedForUntilItHasAllOfItsMemory) {
  UniqueFd lock = locked();
  std::thread filling([&] {
    std::this_thread::sleep_for(milliseconds(20));
    ::unlink(path.c_str());
    lock.reset();
  });
  EXPECT_NO_THROW(LatePages(host).wait("job", ::getpid(), std::chrono::minutes(5)));
  EXPECT_FALSE(is_there());
  filling.join();
}

TEST_F(LatePagesTest, AProgramWhoseMemoryDoesNotComeIsNotMoved) {
  const UniqueFd lock = locked();
  try {
    LatePages(host).wait("job", ::getpid(), milliseconds(10));
    FAIL() << "it was not waited for";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "the memory of 'job' is still being filled in; try again");
  }
  EXPECT_TRUE(is_there());
}

TEST_F(LatePagesTest, AFerryPagesThatWasKilledIsNotWaitedFor) {
  locked().reset();
  EXPECT_NO_THROW(LatePages(host).wait("job", ::getpid(), milliseconds(0)));
  EXPECT_FALSE(is_there());
}

TEST_F(LatePagesTest, WhatAKilledFerryPagesHasLeftIsRemovedLater) {
  const UniqueFd lock = locked();
  LatePages(host).tidy();
  EXPECT_TRUE(is_there());
  ::flock(lock.get(), LOCK_UN);
  LatePages(host).tidy();
  EXPECT_FALSE(is_there());
}

TEST_F(LatePagesTest, AFerryPagesThatCannotStartLeavesNothing) {
  EXPECT_THROW(LatePages(host).hand_over(::getpid(), {}, {}, precopy::PageStore(1 << 20)), Failure);
  EXPECT_FALSE(is_there());
}

}  // namespace
}  // namespace ferry::host
