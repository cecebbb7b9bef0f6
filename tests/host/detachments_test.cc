#include "host/detach/detachments.h"

#include <gtest/gtest.h>

#include "ferryd_here.h"
#include "temporary.h"

// Programs leave a device of the kernel in tests/machines.
namespace ferry::host {
namespace {

using test::failure_of;

struct DetachmentsTest : testing::Test {
  test::FerrydHere ferryd{"here"};
};

TEST_F(DetachmentsTest, OnlyRootHasProgramsLeaveADevice) {
  EXPECT_EQ(failure_of([&] { ferryd.daemon->detach(1000, "none0"); }),
            "only root may have programs leave a device: they are of all users");
}

TEST_F(DetachmentsTest, ADeviceThatIsNotThereIsNamed) {
  EXPECT_NE(failure_of([&] { ferryd.daemon->detach(0, "none0"); }).find("none0"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::host
