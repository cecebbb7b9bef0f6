#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

#include "host/proc/subprocess.h"

namespace ferry::test {

// Runs `ip -batch` on these lines, in the network namespace of the calling thread.
inline void ip(const std::string& lines) {
  const auto outcome = host::run({{"ip", "-batch", "-"}, {}, lines + "\n"});
  EXPECT_TRUE(outcome.ok()) << lines << "\n" << outcome.err;
}

// The call runs in a thread with a network namespace of its own, as do the threads that it starts.
template <typename Call>
void with_own_network(Call call) {
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    ip("link set lo up");
    call();
  }).join();
}

}  // namespace ferry::test
