#include "host/guest/talk/lines.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/failure.h"
#include "guest.pb.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using Clock = Lines::Clock;

class LinesTest : public ::testing::Test {
 protected:
  LinesTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    other_.reset(ends[0]);
    lines_.emplace(UniqueFd(ends[1]));
  }
  void send(const std::string& bytes) {
    EXPECT_EQ(::write(other_.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  // The id of the next message; 0: there is none.
  std::uint64_t next_id() {
    v1::GuestReply reply;
    return lines_->read(&reply, Clock::now() + milliseconds(20)) ? reply.id() : 0;
  }

  UniqueFd other_;
  std::optional<Lines> lines_;
};

TEST_F(LinesTest, AMessageIsALine) {
  v1::GuestRequest request;
  request.set_id(7);
  request.mutable_leave()->add_nics("52:54:00:12:34:56");
  lines_->write(request, Clock::now() + milliseconds(20));
  char bytes[200];
  const ssize_t got = ::read(other_.get(), bytes, sizeof bytes);
  EXPECT_EQ(std::string(bytes, static_cast<std::size_t>(got)),
            "\n{\"id\":\"7\",\"leave\":{\"nics\":[\"52:54:00:12:34:56\"]}}\n");
  send("\n{\"id\":\"7\",\"failure\":\"no \\n such thing\"}\n");
  v1::GuestReply reply;
  ASSERT_TRUE(lines_->read(&reply, Clock::now() + milliseconds(20)));
  EXPECT_EQ(reply.id(), 7u);
  EXPECT_EQ(reply.failure(), "no \n such thing");
}

TEST_F(LinesTest, WhatIsNoMessageIsDropped) {
  send(
      "rest of a "
      "line\"}\n{\"id\":\"1\"}\n\n{\"id\":\"2\",\"new_in_a_later_version\":true}\n{\"id\":\"3\"");
  EXPECT_EQ(next_id(), 1u);
  EXPECT_EQ(next_id(), 2u);
  EXPECT_EQ(next_id(), 0u);
  send("}\n");
  EXPECT_EQ(next_id(), 3u);
}

TEST_F(LinesTest, ALineWithoutEndIsAFailure) {
  const std::string piece(1 << 16, 'x');
  std::string failure;
  try {
    for (;;) {
      send(piece);
      next_id();
    }
  } catch (const Failure& thrown) {
    failure = thrown.what();
  }
  EXPECT_EQ(failure, "the other end sends a line without end");
}

TEST_F(LinesTest, AnEndThatHasGoneIsAFailure) {
  send("{\"id\":\"1\"}\n");
  other_.reset();
  EXPECT_EQ(next_id(), 1u);
  EXPECT_THROW(next_id(), Failure);
  v1::GuestRequest request;
  EXPECT_THROW(lines_->write(request, Clock::now() + milliseconds(20)), Failure);
}

TEST_F(LinesTest, AnEndThatDoesNotListenIsAFailure) {
  v1::GuestRequest request;
  request.mutable_leave()->add_nics(std::string(1 << 20, 'x'));
  std::string failure;
  try {
    lines_->write(request, Clock::now() + milliseconds(20));
  } catch (const Failure& thrown) {
    failure = thrown.what();
  }
  EXPECT_EQ(failure, "the other end does not listen");
}

}  // namespace
}  // namespace ferry::host
