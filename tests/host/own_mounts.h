#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <thread>

namespace ferry::test {

// The call runs in a thread whose mounts nobody else sees.
template <typename Call>
void with_own_mounts(Call call) {
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    call();
  }).join();
}

}  // namespace ferry::test
