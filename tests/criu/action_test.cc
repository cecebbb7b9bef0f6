#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>

#include "played_ferryd.h"

namespace ferry::criu {
namespace {

using test::PlayedFerryd;

// Exit status of the action program, called as CRIU calls it.
int act(const std::string& action) {
  const std::string command = "CRTOOLS_SCRIPT_ACTION=" + action +
                              " CRTOOLS_INIT_PID=77 FERRY_MOVE_ID=18446744073709551615 " ACTION;
  return WEXITSTATUS(std::system(command.c_str()));
}

TEST(Action, PassesOnWhatConcernsFerryd) {
  PlayedFerryd ferryd;
  for (const char* name : {"network-lock", "post-dump", "network-unlock", "post-restore"}) {
    EXPECT_EQ(act(name), 0) << name;
  }
  for (const char* name : {"pre-dump", "pre-restore", "setup-namespaces", "post-resume", ""}) {
    EXPECT_EQ(act(name), 0) << name;
  }
  const auto asked = ferryd.asked();
  ASSERT_EQ(asked.size(), 4u);
  agent::Action action;
  EXPECT_EQ(asked[1].type, agent::MessageType::kAction);
  ASSERT_TRUE(agent::parse(asked[1].body, &action));
  EXPECT_EQ(action.name, "post-dump");
  EXPECT_EQ(action.pid, 77);
  EXPECT_EQ(action.move_id, 18446744073709551615u);
}

TEST(Action, EndsAsFerrydDecides) {
  PlayedFerryd ferryd;
  ferryd.answer({1, ""});
  EXPECT_EQ(act("post-dump"), 1);
  EXPECT_EQ(act("post-dump"), 0);
}

TEST(Action, AsksAgainWhenFerrydGoesAway) {
  PlayedFerryd ferryd;
  ferryd.hang_up_once();
  ferryd.answer({1, ""});
  EXPECT_EQ(act("post-restore"), 1);
  EXPECT_EQ(ferryd.asked().size(), 2u);
}

TEST(Action, AsksAgainWhenFerrydEndsUndecided) {
  PlayedFerryd ferryd;
  ferryd.answer({EAGAIN, ""});
  EXPECT_EQ(act("post-dump"), 0);
  EXPECT_EQ(ferryd.asked().size(), 2u);
}

}  // namespace
}  // namespace ferry::criu
