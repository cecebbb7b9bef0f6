// As in ferryd: a peer that closes a stream is an error of the call, not the end of the process (host/peers/stream.h).

#include <gtest/gtest.h>

#include <csignal>

namespace {

struct IgnoresSigpipe : testing::Environment {
  void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }
};

[[maybe_unused]] testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new IgnoresSigpipe);

}  // namespace
