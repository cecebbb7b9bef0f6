#include "base/line_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "temporary.h"

namespace ferry {
namespace {

// As a serial port of a virtual machine does whose other end is closed.
TEST(LineChannel, AnEndThatHasHungUpIsAFailureOfAWrite) {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master);
  ASSERT_EQ(::unlockpt(master.get()), 0);
  UniqueFd slave(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(slave);
  slave.reset();
  LineChannel channel(std::move(master));
  EXPECT_EQ(test::failure_of([&] {
              channel.write(std::string(1 << 20, 'x'),
                            LineChannel::Clock::now() + std::chrono::hours(1));
            }),
            "the other end does not listen");
}

}  // namespace
}  // namespace ferry
