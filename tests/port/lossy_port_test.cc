#include "port/lossy_port.h"

#include <gtest/gtest.h>

#include <vector>

#include "port/sim_link.h"

namespace ferry::port {
namespace {

const Endpoint kA{Address::from_ipv4(1), 4791};
const Endpoint kB{Address::from_ipv4(2), 4791};

// Numbers of the packets that get through of `count`.
std::vector<unsigned> survivors(double probability, std::uint64_t seed, unsigned count) {
  SimNetwork network(1);
  network.set_receive_buffer(1 << 30);
  LossyPort a(network.attach(kA), probability, seed);
  auto b = network.attach(kB);
  for (unsigned i = 0; i < count; ++i) {
    std::uint16_t id;
    const auto out = a.reserve(kB, 16, &id);
    EXPECT_EQ(out.size(), 16u);
    out[0] = static_cast<std::byte>(i);
    out[1] = static_cast<std::byte>(i >> 8);
  }
  EXPECT_TRUE(a.flush());
  network.advance_to(std::chrono::seconds(1));
  std::vector<unsigned> result;
  Received in[64];
  while (std::size_t n = b->receive(in)) {
    for (std::size_t i = 0; i < n; ++i) {
      result.push_back(static_cast<unsigned>(in[i].bytes[0]) | static_cast<unsigned>(in[i].bytes[1])
                                                                   << 8);
    }
  }
  EXPECT_EQ(a.packets_lost() + result.size(), count);
  return result;
}

TEST(LossyPort, LosesTheShareThatItWasTold) {
  EXPECT_EQ(survivors(0, 1, 1000).size(), 1000u);
  EXPECT_EQ(survivors(1, 1, 1000).size(), 0u);
  EXPECT_NEAR(static_cast<double>(survivors(0.1, 1, 10000).size()), 9000, 150);
}

TEST(LossyPort, TheSeedDecidesWhich) {
  EXPECT_EQ(survivors(0.5, 7, 1000), survivors(0.5, 7, 1000));
  EXPECT_NE(survivors(0.5, 7, 1000), survivors(0.5, 8, 1000));
}

TEST(LossyPort, UnreserveReachesWhatWasReservedLast) {
  SimNetwork network(1);
  auto b = network.attach(kB);
  LossyPort a(network.attach(kA), 0.5, 3);
  std::uint16_t id;
  for (int i = 0; i < 100; ++i) {
    a.reserve(kB, 16, &id);
    a.unreserve();
  }
  EXPECT_EQ(a.packets_lost(), 0u);
  EXPECT_TRUE(a.flush());
  EXPECT_EQ(network.next_event_time(), kSimNever);
}

}  // namespace
}  // namespace ferry::port
