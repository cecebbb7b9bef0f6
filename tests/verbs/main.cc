#include <gtest/gtest.h>

#include <cstdlib>

int main(int count, char** arguments) {
  ::setenv("FERRYD_SOCKET", "/nonexistent/ferryd.sock",
           1);  // a ferryd of this machine is not meant
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
