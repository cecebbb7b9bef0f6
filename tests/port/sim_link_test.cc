#include "port/sim_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "wire/icrc.h"

namespace ferry::port {
namespace {

using namespace std::chrono_literals;

const Endpoint kA{Address::from_ipv4(0x0A000001), 4791};
const Endpoint kB{Address::from_ipv4(0x0A000002), 4791};
const Endpoint kC{Address::from_ipv4(0x0A000003), 61441};

void send(Port& from, const Endpoint& to, unsigned number, std::size_t length = 32) {
  std::uint16_t id;
  const auto out = from.reserve(to, length, &id);
  ASSERT_EQ(out.size(), length);
  std::fill(out.begin(), out.end(), std::byte{0});
  for (int i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(number >> 8 * i);
  wire::seal(out, from.local(), to, id);
  ASSERT_TRUE(from.flush());
}

std::vector<unsigned> receive(Port& at) {
  std::vector<unsigned> numbers;
  Received in[16];
  while (std::size_t n = at.receive(in)) {
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_TRUE(wire::verify(in[i].bytes, in[i].from, at.local(), in[i].ip_identification));
      unsigned number = 0;
      for (int k = 3; k >= 0; --k) number = number << 8 | static_cast<unsigned>(in[i].bytes[k]);
      numbers.push_back(number);
    }
  }
  return numbers;
}

std::vector<unsigned> first(unsigned count) {
  std::vector<unsigned> numbers(count);
  for (unsigned i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

TEST(SimLink, PacketsArriveAfterTheDelayAndNotBefore) {
  SimNetwork network(1);
  auto a = network.attach(kA), b = network.attach(kB);
  EXPECT_EQ(network.next_event_time(), kSimNever);
  send(*a, kB, 0);
  EXPECT_EQ(network.next_event_time(), 5us);
  EXPECT_TRUE(receive(*b).empty());
  network.advance_to(4999ns);
  EXPECT_TRUE(receive(*b).empty());
  network.advance_to(5us);
  EXPECT_EQ(receive(*b), first(1));
  EXPECT_EQ(network.now(), SimTime(5us));
  EXPECT_EQ(network.next_event_time(), kSimNever);
}

TEST(SimLink, OrderHoldsWhileDelaysVary) {
  SimNetwork network(2);
  network.set_conditions({.min_delay = 1us, .max_delay = 500us});
  auto a = network.attach(kA), b = network.attach(kB);
  for (unsigned i = 0; i < 300; ++i) {
    send(*a, kB, i);
    network.advance_to(network.now() + 100ns);
  }
  network.advance_to(1s);
  EXPECT_EQ(receive(*b), first(300));
}

TEST(SimLink, ReorderedPacketsAreOvertaken) {
  SimNetwork network(3);
  network.set_conditions({.reordering = 0.2, .reorder_delay = 50us});
  std::map<SimVerdict, int> verdicts;
  network.set_trace([&](SimTime, const Endpoint&, const Endpoint&, std::span<const std::byte>,
                        SimVerdict verdict) { ++verdicts[verdict]; });
  auto a = network.attach(kA), b = network.attach(kB);
  for (unsigned i = 0; i < 1000; ++i) {
    send(*a, kB, i);
    network.advance_to(network.now() + 1us);
  }
  network.advance_to(1s);
  auto numbers = receive(*b);
  EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, first(1000));
  EXPECT_NEAR(verdicts[SimVerdict::kReordered], 200, 50);
  EXPECT_EQ(verdicts[SimVerdict::kReordered] + verdicts[SimVerdict::kSent], 1000);
}

TEST(SimLink, LosesAndDuplicatesTheShareThatItWasTold) {
  SimNetwork network(4);
  network.set_conditions({.loss = 0.1, .duplication = 0.05});
  network.set_receive_buffer(1 << 30);
  auto a = network.attach(kA), b = network.attach(kB);
  for (unsigned i = 0; i < 20000; ++i) send(*a, kB, i);
  network.advance_to(1s);
  std::map<unsigned, int> copies;
  for (unsigned number : receive(*b)) ++copies[number];
  int twice = 0;
  for (const auto& [number, count] : copies) {
    EXPECT_LE(count, 2);
    twice += count == 2;
  }
  EXPECT_NEAR(static_cast<double>(copies.size()), 18000, 200);
  EXPECT_NEAR(twice, 900, 130);

  // Both can be switched off while it runs.
  network.set_conditions({});
  for (unsigned i = 0; i < 1000; ++i) send(*a, kB, i);
  network.advance_to(2s);
  EXPECT_EQ(receive(*b), first(1000));
}

std::string run(std::uint64_t seed) {
  SimNetwork network(seed);
  network.set_conditions(
      {.loss = 0.1, .duplication = 0.1, .reordering = 0.1, .min_delay = 1us, .max_delay = 30us});
  std::string text;
  network.set_trace([&](SimTime time, const Endpoint& from, const Endpoint& to,
                        std::span<const std::byte> bytes, SimVerdict verdict) {
    text += std::to_string(time.count()) + ' ' + std::to_string(from.udp_port) + ' ' +
            std::to_string(to.udp_port) + ' ' + std::to_string(static_cast<int>(bytes[0])) + ' ' +
            name_of(verdict) + '\n';
  });
  auto a = network.attach(kA), b = network.attach(kB), c = network.attach(kC);
  for (unsigned i = 0; i < 200; ++i) {
    send(*a, i % 3 ? kB : kC, i);
    send(*b, kA, i);
    if (i % 10 == 0) network.advance_to(network.next_event_time());
    if (i == 100) c.reset();
  }
  network.advance_to(1s);
  receive(*a);
  receive(*b);
  return text;
}

TEST(SimLink, ASeedGivesOneTrace) {
  const std::string trace = run(42);
  EXPECT_EQ(run(42), trace);
  EXPECT_NE(run(43), trace);
  for (const char* verdict :
       {"sent", "reordered", "duplicated", "lost", "delivered", "unreachable"}) {
    EXPECT_NE(trace.find(verdict), std::string::npos) << verdict;
  }
}

TEST(SimLink, AnEndpointHasOnePort) {
  SimNetwork network(5);
  auto a = network.attach(kA);
  EXPECT_FALSE(network.attach(kA));
  a.reset();
  EXPECT_TRUE(network.attach(kA));
}

TEST(SimLink, PacketsToADetachedEndpointVanish) {
  SimNetwork network(6);
  auto a = network.attach(kA), b = network.attach(kB);
  send(*a, kB, 0);
  b.reset();
  network.advance_to(1ms);
  b = network.attach(kB);
  EXPECT_TRUE(receive(*b).empty());
  send(*a, kB, 0);
  network.advance_to(2ms);
  EXPECT_EQ(receive(*b), first(1));
}

TEST(SimLink, ASocketHandedOverKeepsItsEndpointAndItsPackets) {
  SimNetwork network(7);
  auto a = network.attach(kA), b = network.attach(kB);
  send(*a, kB, 0);
  SimHandle handle = b->detach();
  EXPECT_TRUE(handle);
  std::uint16_t id;
  EXPECT_TRUE(b->reserve(kA, 32, &id).empty());
  EXPECT_TRUE(b->flush());
  b.reset();
  EXPECT_FALSE(network.attach(kB));
  network.advance_to(1ms);
  auto stand_in = network.adopt(std::move(handle));
  ASSERT_TRUE(stand_in);
  EXPECT_EQ(stand_in->local(), kB);
  EXPECT_EQ(receive(*stand_in), first(1));
  send(*stand_in, kA, 0);
  network.advance_to(2ms);
  EXPECT_EQ(receive(*a), first(1));
  { const SimHandle dropped = stand_in->detach(); }
  stand_in.reset();
  EXPECT_TRUE(network.attach(kB));
}

TEST(SimLink, AFullReceiverDropsAndRecovers) {
  SimNetwork network(8);
  network.set_receive_buffer(10 * window_charge(32));
  auto a = network.attach(kA), b = network.attach(kB);
  EXPECT_EQ(b->window_bytes(), 10 * window_charge(32));
  for (unsigned i = 0; i < 15; ++i) send(*a, kB, i);
  network.advance_to(1ms);
  EXPECT_EQ(receive(*b), first(10));
  for (unsigned i = 0; i < 10; ++i) send(*a, kB, i);
  network.advance_to(2ms);
  EXPECT_EQ(receive(*b), first(10));
}

TEST(SimLink, AFullSocketTakesNothingUntilItHasRoom) {
  SimNetwork network(9);
  auto a = network.attach(kA), b = network.attach(kB);
  std::uint16_t id;
  a->set_full(true);
  EXPECT_TRUE(a->reserve(kB, 32, &id).empty());
  EXPECT_TRUE(a->flush()) << "nothing remains queued";
  a->set_full(false);
  ASSERT_EQ(a->reserve(kB, 32, &id).size(), 32u);
  a->set_full(true);
  EXPECT_FALSE(a->flush());
  EXPECT_EQ(network.next_event_time(), kSimNever);
  a->set_full(false);
  EXPECT_TRUE(a->flush());
  EXPECT_NE(network.next_event_time(), kSimNever);
}

TEST(SimLink, AFilterDropsWhatItChooses) {
  SimNetwork network(10);
  auto a = network.attach(kA), b = network.attach(kB);
  network.set_filter([](const Endpoint& from, const Endpoint&, std::span<const std::byte> bytes) {
    return from != kA || bytes[0] != std::byte{1};
  });
  for (unsigned i = 0; i < 3; ++i) send(*a, kB, i);
  send(*b, kA, 1);
  network.advance_to(1ms);
  EXPECT_EQ(receive(*b), (std::vector<unsigned>{0, 2}));
  EXPECT_EQ(receive(*a), std::vector<unsigned>{1});
}

TEST(SimLink, IdentificationsCountWithinARun) {
  SimNetwork network(11);
  auto a = network.attach(kA);
  auto next = [&](const Endpoint& to, std::size_t length) {
    std::uint16_t id = 0xFFFF;
    a->reserve(to, length, &id);
    return id;
  };
  EXPECT_EQ(next(kB, 64), 0);
  EXPECT_EQ(next(kB, 64), 1);
  EXPECT_EQ(next(kB, 64), 2);
  a->unreserve();
  EXPECT_EQ(next(kB, 64), 2);
  EXPECT_EQ(next(kB, 32), 0);
  EXPECT_EQ(next(kC, 32), 0);
  a->flush();
  EXPECT_EQ(next(kC, 32), 0);
}

}  // namespace
}  // namespace ferry::port
