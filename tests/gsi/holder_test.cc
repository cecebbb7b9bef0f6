#include "gsi/holder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/udp_port.h"

namespace ferry::gsi {
namespace {

// Loopback addresses of this process's own: tests run side by side.
port::Address address(unsigned number) {
  const auto process = static_cast<std::uint32_t>(::getpid()) & 0xFFFF;
  return port::Address::from_ipv4(0x7F500000 + (process << 4) + number);
}

std::unique_ptr<port::Port> bind_real(const port::Address& where, int* error) {
  return port::UdpPort::bind(where, 0, error);
}

bool is_free(const port::Address& where) {
  int error = 0;
  return bind_real(where, &error) != nullptr;
}

TEST(Holder, HoldsWhatIsWantedAndLetsGoOfTheRest) {
  Holder holder(bind_real, false);
  EXPECT_TRUE(holder.hold({address(1), address(2)}));
  EXPECT_EQ(holder.ports().size(), 2u);
  EXPECT_FALSE(is_free(address(1)));
  EXPECT_TRUE(holder.hold({address(2)}));
  EXPECT_TRUE(is_free(address(1)));
  EXPECT_FALSE(is_free(address(2)));
  holder.let_go();
  EXPECT_TRUE(is_free(address(2)));
}

TEST(Holder, WhatAnotherHoldsIsTakenWhenThatOneEnds) {
  int error = 0;
  auto other = bind_real(address(3), &error);
  ASSERT_NE(other, nullptr);
  Holder holder(bind_real, true);
  EXPECT_FALSE(holder.hold({address(3), address(4)}));
  EXPECT_EQ(holder.ports().size(), 1u);
  EXPECT_FALSE(holder.ports().contains(address(3)));
  ASSERT_GE(holder.watch_descriptor(), 0);
  other.reset();
  pollfd watch{holder.watch_descriptor(), POLLIN, 0};
  // Other UDP sockets of this network namespace end too, those of other tests among them.
  bool freed = false;
  while (!freed && ::poll(&watch, 1, 60000) > 0) freed = holder.port_was_freed();
  EXPECT_TRUE(freed);
  EXPECT_TRUE(holder.hold({address(3), address(4)}));
  EXPECT_TRUE(holder.ports().contains(address(3)));
  EXPECT_LT(holder.watch_descriptor(), 0);  // nothing is missing any more
}

TEST(Holder, InAForkedChildThePortsAreLeftToTheParent) {
  Holder holder(bind_real, true);
  ASSERT_TRUE(holder.hold({address(5)}));
  const int descriptor = holder.ports().at(address(5))->descriptor();
  const pid_t child = ::fork();
  if (child == 0) {
    holder.abandon();
    ::_exit(holder.ports().empty() && ::fcntl(descriptor, F_GETFD) < 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GE(::fcntl(descriptor, F_GETFD), 0);
}

}  // namespace
}  // namespace ferry::gsi
