#include "port/loss.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "port/sim_link.h"
#include "port/slot.h"
#include "port/udp_port.h"

namespace ferry::port {
namespace {

const Endpoint kLossyA{Address::from_ipv4(1), 4791};
const Endpoint kLossyB{Address::from_ipv4(2), 4791};

void send_lossy(Port& from, const Endpoint& to, unsigned number, std::size_t length = 16) {
  std::uint16_t id;
  const auto out = from.reserve(to, length, &id);
  ASSERT_EQ(out.size(), length);
  std::memset(out.data(), static_cast<int>(number), length);
  std::memcpy(out.data(), &number, sizeof number);
}

unsigned number_of(const Received& packet) {
  unsigned number = 0;
  std::memcpy(&number, packet.bytes.data(), sizeof number);
  return number;
}

std::vector<unsigned> all_of(Port& port, std::size_t batch) {
  std::vector<unsigned> result;
  std::vector<Received> in(batch);
  while (const std::size_t n = port.receive(in)) {
    for (std::size_t i = 0; i < n; ++i) {
      result.push_back(number_of(in[i]));
      const auto rest = in[i].bytes.subspan(sizeof(unsigned));
      for (const std::byte byte : rest) EXPECT_EQ(byte, static_cast<std::byte>(result.back()));
    }
  }
  return result;
}

// Numbers of the packets that get through of `count`.
std::vector<unsigned> survivors(const Loss::Settings& sender, const Loss::Settings& receiver,
                                unsigned count) {
  SimNetwork network(1);
  network.set_receive_buffer(1 << 30);
  Loss losses_a(sender), losses_b(receiver);
  auto a = losses_a.on(network.attach(kLossyA));
  auto b = losses_b.on(network.attach(kLossyB));
  for (unsigned i = 0; i < count; ++i) send_lossy(*a, kLossyB, i);
  EXPECT_TRUE(a->flush());
  network.advance_to(std::chrono::seconds(1));
  const auto result = all_of(*b, 64);
  EXPECT_EQ(losses_a.packets() + losses_b.packets() + result.size(), count);
  return result;
}

TEST(Loss, IsTheShareThatItWasTold) {
  EXPECT_EQ(survivors({}, {}, 1000).size(), 1000u);
  EXPECT_EQ(survivors({.sending = 1}, {}, 1000).size(), 0u);
  EXPECT_EQ(survivors({}, {.receiving = 1}, 1000).size(), 0u);
  EXPECT_NEAR(static_cast<double>(survivors({.sending = 0.1}, {}, 10000).size()), 9000, 150);
  EXPECT_NEAR(static_cast<double>(survivors({}, {.receiving = 0.1}, 10000).size()), 9000, 150);
  EXPECT_NEAR(
      static_cast<double>(survivors({.sending = 0.1}, {.receiving = 0.1, .seed = 2}, 10000).size()),
      8100, 200);
  // Each way is its own.
  EXPECT_EQ(survivors({.receiving = 1}, {.sending = 1}, 1000).size(), 1000u);
}

TEST(Loss, TheSeedDecidesWhich) {
  const auto sent = [](std::uint64_t seed) {
    return survivors({.sending = 0.5, .seed = seed}, {}, 1000);
  };
  EXPECT_EQ(sent(7), sent(7));
  EXPECT_NE(sent(7), sent(8));
  const auto received = [](std::uint64_t seed) {
    return survivors({}, {.receiving = 0.5, .seed = seed}, 1000);
  };
  EXPECT_EQ(received(7), received(7));
  EXPECT_NE(received(7), received(8));
}

TEST(Loss, NobodyPaysWhereNothingIsLost) {
  SimNetwork network(1);
  auto port = network.attach(kLossyA);
  const Port* const plain = port.get();
  Loss none;
  EXPECT_EQ(none.on(std::move(port)).get(), plain);
  EXPECT_EQ(none.on(nullptr), nullptr);
  Loss all({.sending = 1});
  EXPECT_EQ(all.on(nullptr), nullptr);
}

TEST(Loss, UnreserveReachesWhatWasReservedLast) {
  SimNetwork network(1);
  Loss losses({.sending = 0.5, .seed = 3});
  auto b = network.attach(kLossyB);
  auto a = losses.on(network.attach(kLossyA));
  std::uint16_t id;
  for (int i = 0; i < 100; ++i) {
    a->reserve(kLossyB, 16, &id);
    a->unreserve();
  }
  EXPECT_EQ(losses.packets(), 0u);
  EXPECT_TRUE(a->flush());
  EXPECT_EQ(network.next_event_time(), kSimNever);
}

// Who gets fewer packets than asked for may rely on it that the port holds no more.
TEST(Loss, FewerThanAskedForMeansThatThereAreNoMore) {
  SimNetwork network(1);
  network.set_receive_buffer(1 << 30);
  Loss losses({.receiving = 0.9, .seed = 5});
  auto a = network.attach(kLossyA);
  auto b = losses.on(network.attach(kLossyB));
  for (unsigned i = 0; i < 1000; ++i) send_lossy(*a, kLossyB, i);
  EXPECT_TRUE(a->flush());
  network.advance_to(std::chrono::seconds(1));
  Received in[8];
  std::size_t count = 0;
  for (;;) {
    const std::size_t n = b->receive(in);
    count += n;
    if (n < 8) break;
  }
  EXPECT_EQ(losses.packets() + count, 1000u);
  EXPECT_EQ(b->receive(in), 0u);
}

std::unique_ptr<UdpPort> open_udp() {
  static std::uint32_t next_slot = 1;
  int error = EADDRINUSE;
  std::unique_ptr<UdpPort> port;
  while (!port && error == EADDRINUSE && next_slot <= kMaxSlot) {
    port = UdpPort::bind(Address::from_ipv4(INADDR_LOOPBACK), next_slot++, &error);
  }
  EXPECT_TRUE(port) << std::strerror(error);
  return port;
}

std::vector<unsigned> take(Port& port, const UdpPort::Counters& counters, std::uint64_t packets) {
  std::vector<unsigned> result;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (counters.packets_received < packets && std::chrono::steady_clock::now() < end) {
    pollfd waiting{port.descriptor(), POLLIN, 0};
    poll(&waiting, 1, 100);
    const auto more = all_of(port, 16);
    result.insert(result.end(), more.begin(), more.end());
  }
  EXPECT_EQ(counters.packets_received, packets);
  return result;
}

constexpr unsigned kBatch = 32;      // packets of one super-packet
constexpr std::size_t kSize = 1000;  // bytes of each

// Super-packets on the socket, and single packets lost out of them on the way in.
TEST(LossOnUdp, TakesSinglePacketsOutOfSuperPackets) {
  auto a = open_udp();
  auto udp = open_udp();
  ASSERT_TRUE(a && udp);
  const UdpPort::Counters& counters = udp->counters();
  const Endpoint to = udp->local();
  Loss losses({.receiving = 0.3, .seed = 11});
  auto b = losses.on(std::move(udp));
  unsigned next = 0;
  std::vector<unsigned> arrived;
  unsigned torn = 0;  // super-packets of which some packets arrived and some did not
  for (int i = 0; i < 20; ++i) {
    for (unsigned k = 0; k < kBatch; ++k) send_lossy(*a, to, next++, kSize);
    ASSERT_TRUE(a->flush());
    const auto part = take(*b, counters, next);
    if (!part.empty() && part.size() < kBatch) ++torn;
    arrived.insert(arrived.end(), part.begin(), part.end());
  }
  EXPECT_EQ(a->counters().super_packets_sent, 20u);
  EXPECT_EQ(counters.super_packets_received, 20u);
  EXPECT_EQ(torn, 20u);
  EXPECT_TRUE(std::is_sorted(arrived.begin(), arrived.end()));
  EXPECT_EQ(arrived.size() + losses.packets(), next);
  EXPECT_NEAR(static_cast<double>(losses.packets()), 0.3 * next, 60);
}

// What is lost on the way out leaves the others in one super-packet.
TEST(LossOnUdp, LeavesSinglePacketsOutOfSuperPackets) {
  auto udp = open_udp();
  auto b = open_udp();
  ASSERT_TRUE(udp && b);
  const UdpPort::Counters& counters = udp->counters();
  Loss losses({.sending = 0.3, .seed = 12});
  auto a = losses.on(std::move(udp));
  std::vector<unsigned> arrived;
  unsigned next = 0;
  for (int i = 0; i < 20; ++i) {
    for (unsigned k = 0; k < kBatch; ++k) send_lossy(*a, b->local(), next++, kSize);
    ASSERT_TRUE(a->flush());
    const auto part = take(*b, b->counters(), next - losses.packets());
    EXPECT_LT(part.size(), kBatch);
    arrived.insert(arrived.end(), part.begin(), part.end());
  }
  EXPECT_EQ(counters.super_packets_sent, 20u);
  EXPECT_EQ(b->counters().super_packets_received, 20u);
  EXPECT_TRUE(std::is_sorted(arrived.begin(), arrived.end()));
  EXPECT_EQ(arrived.size() + losses.packets(), next);
  EXPECT_NEAR(static_cast<double>(losses.packets()), 0.3 * next, 60);
}

TEST(LossOnUdp, GivesItsSocketAway) {
  auto a = open_udp();
  auto udp = open_udp();
  ASSERT_TRUE(a && udp);
  const Endpoint to = udp->local();
  Loss losses({.receiving = 0.5, .seed = 13});
  auto b = losses.on(std::move(udp));
  const int descriptor = b->release();
  EXPECT_EQ(b->descriptor(), -1);
  int error = 0;
  auto again = UdpPort::adopt(descriptor, &error);
  ASSERT_TRUE(again) << std::strerror(error);
  for (unsigned i = 0; i < 10; ++i) send_lossy(*a, to, i);
  ASSERT_TRUE(a->flush());
  EXPECT_EQ(take(*again, again->counters(), 10).size(), 10u);
}

}  // namespace
}  // namespace ferry::port
