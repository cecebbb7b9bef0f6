#include "port/udp_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "network_namespace.h"
#include "port/slot.h"
#include "port/udp_socket.h"
#include "wire/header.h"
#include "wire/icrc.h"

namespace ferry::port {
namespace {

using Clock = std::chrono::steady_clock;

Address ipv4(const char* text) {
  in_addr address;
  inet_pton(AF_INET, text, &address);
  return Address::from_ipv4(ntohl(address.s_addr));
}

Address ipv6(const char* text) {
  Address address;
  inet_pton(AF_INET6, text, address.bytes.data());
  return address;
}

struct Arrived {
  Endpoint from;
  std::vector<std::byte> bytes;
  std::uint16_t hint;
};

// Everything that comes within the time, until there are `count` packets.
std::vector<Arrived> take(UdpPort& port, std::size_t count, int milliseconds = 2000) {
  std::vector<Arrived> result;
  const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (result.size() < count && Clock::now() < end) {
    Received batch[16];
    const std::size_t n = port.receive(batch);
    for (std::size_t i = 0; i < n; ++i) {
      result.push_back({batch[i].from,
                        {batch[i].bytes.begin(), batch[i].bytes.end()},
                        batch[i].ip_identification});
    }
    if (n == 0) {
      pollfd waiting{port.descriptor(), POLLIN, 0};
      poll(&waiting, 1, 10);
    }
  }
  return result;
}

// A packet of `length` bytes, sealed, that names its number and whom it is for.
void queue(UdpPort& port, const Endpoint& to, std::size_t length, std::uint32_t number) {
  std::uint16_t identification = 0xFFFF;
  const auto out = port.reserve(to, length, &identification);
  ASSERT_EQ(out.size(), length);
  wire::Header header;
  header.opcode = wire::Opcode::kRcSendOnly;
  header.psn = number;
  const std::size_t payload = length - wire::kBthSize - wire::kIcrcSize;
  wire::encode_header(header, payload, out);
  std::memset(out.data() + wire::kBthSize, static_cast<int>(number), payload);
  wire::seal(out, port.local(), to, identification);
}

std::uint32_t number_of(const Arrived& packet) {
  const auto parsed = wire::parse(packet.bytes);
  return parsed ? parsed->header.psn : 0xFFFFFFFF;
}

class UdpPortOn : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string text = GetParam();
    address_ = text.find(':') == std::string::npos ? ipv4(text.c_str()) : ipv6(text.c_str());
    a_ = open();
    b_ = open();
    c_ = open();
    ASSERT_TRUE(a_ && b_ && c_);
  }

  // A port of some free slot ≥ 1.
  std::unique_ptr<UdpPort> open() {
    int error = EADDRINUSE;
    std::unique_ptr<UdpPort> port;
    while (!port && error == EADDRINUSE && next_slot_ <= kMaxSlot) {
      port = UdpPort::bind(address_, next_slot_++, &error);
    }
    EXPECT_TRUE(port) << std::strerror(error);
    return port;
  }

  // Packets `first` .. `first + sizes.size() - 1`, in order, each with a right ICRC for exactly the
  // identification it is said to have had.
  void expect(UdpPort& at, const UdpPort& from, std::uint32_t first,
              const std::vector<std::size_t>& sizes) {
    const auto packets = take(at, sizes.size());
    ASSERT_EQ(packets.size(), sizes.size());
    for (std::size_t i = 0; i < packets.size(); ++i) {
      EXPECT_EQ(packets[i].from, from.local());
      ASSERT_EQ(packets[i].bytes.size(), sizes[i]) << i;
      EXPECT_EQ(number_of(packets[i]), first + i);
      auto again = packets[i].bytes;
      wire::seal(again, packets[i].from, at.local(), packets[i].hint);
      EXPECT_EQ(again, packets[i].bytes)
          << "packet " << i << " had another identification than " << packets[i].hint;
      EXPECT_TRUE(wire::verify(packets[i].bytes, packets[i].from, at.local(), packets[i].hint));
    }
  }

  Address address_;
  std::uint32_t next_slot_ = 1;
  std::unique_ptr<UdpPort> a_, b_, c_;
};
INSTANTIATE_TEST_SUITE_P(Loopback, UdpPortOn, testing::Values("127.0.0.1", "::1"),
                         [](const auto& test) {
                           return std::string(test.param) == "::1" ? "Ipv6" : "Ipv4";
                         });

TEST_P(UdpPortOn, NothingWaitsAtFirst) {
  Received out[4];
  EXPECT_EQ(a_->receive(out), 0u);
  EXPECT_TRUE(a_->flush());
}

TEST_P(UdpPortOn, CarriesOnePacket) {
  queue(*a_, b_->local(), 64, 7);
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 7, {64});
  EXPECT_EQ(a_->counters().packets_sent, 1u);
  EXPECT_EQ(a_->counters().super_packets_sent, 0u);
  EXPECT_EQ(b_->counters().bytes_received, 64u);
}

TEST_P(UdpPortOn, EqualPacketsBecomeSuperPackets) {
  std::vector<std::size_t> sizes(100, 4112);
  for (std::uint32_t i = 0; i < sizes.size(); ++i) queue(*a_, b_->local(), sizes[i], i);
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 0, sizes);
  EXPECT_EQ(a_->counters().packets_sent, 100u);
  EXPECT_EQ(a_->counters().bytes_sent, 411200u);
  EXPECT_EQ(a_->counters().super_packets_sent, 7u);  // 15 of 4,112 bytes are 61,680
  EXPECT_EQ(b_->counters().super_packets_received, 7u);
  EXPECT_EQ(a_->counters().packets_lost, 0u);
}

TEST_P(UdpPortOn, ShortPacketsFillSuperPacketsByNumber) {
  std::vector<std::size_t> sizes(300, 80);
  for (std::uint32_t i = 0; i < sizes.size(); ++i) queue(*a_, b_->local(), sizes[i], i);
  EXPECT_TRUE(a_->flush());
  const auto packets = take(*b_, sizes.size());
  ASSERT_EQ(packets.size(), sizes.size());
  for (std::uint32_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(number_of(packets[i]), i);
    // An older kernel takes 64 a time; then what was sealed for 64 .. 127 has other hints.
    EXPECT_TRUE(wire::verify(packets[i].bytes, packets[i].from, b_->local(), packets[i].hint));
  }
  EXPECT_GE(a_->counters().super_packets_sent, 3u);
  EXPECT_LE(a_->counters().super_packets_sent, 6u);
}

TEST_P(UdpPortOn, AShorterPacketClosesASuperPacket) {
  const std::vector<std::size_t> sizes = {1040, 1040, 1040, 100, 1040, 1040, 20, 20, 64, 64};
  for (std::uint32_t i = 0; i < sizes.size(); ++i) queue(*a_, b_->local(), sizes[i], i);
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 0, sizes);
  // 1040 1040 1040 100 | 1040 1040 20 | 20 | 64 64
  EXPECT_EQ(a_->counters().super_packets_sent, 3u);
}

TEST_P(UdpPortOn, MixedSizesKeepTheirOrder) {
  std::vector<std::size_t> sizes;
  for (std::uint32_t i = 0; i < 500; ++i) {
    sizes.push_back(16 + 4 * (i * 2654435761u >> 23) % 4096);
    queue(*a_, b_->local(), sizes[i], i);
  }
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 0, sizes);
}

TEST_P(UdpPortOn, TwoEndpointsGetTheirOwnInOrder) {
  std::vector<std::size_t> to_b, to_c;
  for (std::uint32_t i = 0; i < 60; ++i) {
    const std::size_t size = i % 7 < 3 ? 4112 : 20;
    const bool b = i % 5 < 3;
    auto& sizes = b ? to_b : to_c;
    queue(*a_, b ? b_->local() : c_->local(), size, static_cast<std::uint32_t>(sizes.size()));
    sizes.push_back(size);
  }
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 0, to_b);
  expect(*c_, *a_, 0, to_c);
}

TEST_P(UdpPortOn, SmallBatchesOfTheReceiverLoseNothing) {
  std::vector<std::size_t> sizes(40, 1040);
  for (std::uint32_t i = 0; i < sizes.size(); ++i) queue(*a_, b_->local(), sizes[i], i);
  EXPECT_TRUE(a_->flush());
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    Received one[1];
    ASSERT_EQ(b_->receive(one), 1u) << i;
    EXPECT_EQ(wire::parse(one[0].bytes)->header.psn, i);
    EXPECT_EQ(one[0].ip_identification, i);
  }
  Received one[1];
  EXPECT_EQ(b_->receive(one), 0u);
}

TEST_P(UdpPortOn, UnreserveTakesOnlyTheLastBack) {
  queue(*a_, b_->local(), 1040, 0);
  queue(*a_, b_->local(), 1040, 1);
  queue(*a_, b_->local(), 500, 99);  // closes the run
  a_->unreserve();
  queue(*a_, b_->local(), 1040, 2);  // which is open again
  queue(*a_, b_->local(), 2064, 99);
  a_->unreserve();
  queue(*a_, c_->local(), 64, 99);
  a_->unreserve();
  queue(*a_, b_->local(), 300, 3);
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 0, {1040, 1040, 1040, 300});
  EXPECT_EQ(a_->counters().super_packets_sent, 1u);
  EXPECT_TRUE(take(*c_, 1, 50).empty());
}

TEST_P(UdpPortOn, RefusesLengthsThatAreNoPackets) {
  std::uint16_t id;
  EXPECT_TRUE(a_->reserve(b_->local(), 0, &id).empty());
  EXPECT_TRUE(a_->reserve(b_->local(), kMaxPacket + 1, &id).empty());
  EXPECT_EQ(a_->reserve(b_->local(), kMaxPacket, &id).size(), kMaxPacket);
}

// UDP_SEGMENT needs a UDP checksum: without one the kernel refuses super-packets.
TEST_P(UdpPortOn, GoesOnWithoutSegmentationWhenTheKernelRefusesIt) {
  const int on = 1;
  ASSERT_EQ(address_.is_ipv4()
                ? setsockopt(a_->descriptor(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on)
                : setsockopt(a_->descriptor(), SOL_UDP, UDP_NO_CHECK6_TX, &on, sizeof on),
            0);
  std::vector<std::size_t> sizes(40, 1040);
  sizes.back() = 64;
  for (std::uint32_t i = 0; i < sizes.size(); ++i) queue(*a_, b_->local(), sizes[i], i);
  EXPECT_TRUE(a_->flush());
  const auto packets = take(*b_, sizes.size());
  ASSERT_EQ(packets.size(), sizes.size());
  for (std::uint32_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(number_of(packets[i]), i);
    // Sealed as segment i, sent as a datagram of its own: the receiver solves for it.
    EXPECT_TRUE(wire::verify(packets[i].bytes, packets[i].from, b_->local(), packets[i].hint));
  }
  EXPECT_EQ(a_->counters().super_packets_sent, 0u);
  EXPECT_EQ(a_->counters().packets_sent, 40u);
  // From now on every packet is sealed for what it is.
  for (std::uint32_t i = 0; i < sizes.size(); ++i) queue(*a_, b_->local(), sizes[i], i);
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 0, sizes);
}

TEST_P(UdpPortOn, SkipsEmptyAndOversizedDatagrams) {
  const std::vector<char> large(60000);
  sockaddr_storage to{};
  socklen_t length = sizeof to;
  ASSERT_EQ(getsockname(b_->descriptor(), reinterpret_cast<sockaddr*>(&to), &length), 0);
  auto send = [&](std::size_t size) {
    ASSERT_EQ(
        sendto(a_->descriptor(), large.data(), size, 0, reinterpret_cast<sockaddr*>(&to), length),
        static_cast<ssize_t>(size));
  };
  send(0);
  send(kMaxPacket + 1);
  send(60000);
  send(1);
  const auto packets = take(*b_, 1);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].bytes.size(), 1u);
  EXPECT_EQ(b_->counters().datagrams_skipped, 3u);
}

TEST_P(UdpPortOn, PacketsToNowhereAreLostNotFatal) {
  const Endpoint nowhere{address_.is_ipv4() ? ipv4("240.0.0.1") : ipv6("2001:db8::1"), 4791};
  const Endpoint other_family{address_.is_ipv4() ? ipv6("::1") : ipv4("127.0.0.1"), 4791};
  for (std::uint32_t i = 0; i < 3; ++i) queue(*a_, nowhere, 64, i);
  queue(*a_, other_family, 64, 3);
  queue(*a_, b_->local(), 64, 4);
  // A port that nobody has: an ICMP error comes back and must not disturb either.
  queue(*a_, {address_, 9}, 64, 5);
  EXPECT_TRUE(a_->flush());
  queue(*a_, b_->local(), 64, 5);
  EXPECT_TRUE(a_->flush());
  expect(*b_, *a_, 4, {64, 64});
  if (in_own_network_namespace()) {
    EXPECT_EQ(a_->counters().packets_lost, 4u);
  }
  Received out[1];
  EXPECT_EQ(a_->receive(out), 0u);
}

TEST_P(UdpPortOn, PacketsBeyondTheMtuAreLostNotFragmented) {
  if (!in_own_network_namespace()) GTEST_SKIP() << "needs a network namespace of its own";
  ASSERT_TRUE(set_mtu("lo", 1500));
  for (std::uint32_t i = 0; i < 5; ++i) queue(*a_, b_->local(), 4112, i);
  queue(*a_, b_->local(), 1040, 5);
  queue(*a_, b_->local(), 4112, 6);
  for (std::uint32_t i = 6; i < 9; ++i) queue(*a_, b_->local(), 1040, i);
  EXPECT_TRUE(a_->flush());
  ASSERT_TRUE(set_mtu("lo", 65536));
  // What closed a super-packet that is too large was lost with it.
  EXPECT_EQ(a_->counters().packets_lost, 8u);
  expect(*b_, *a_, 7, {1040, 1040});
  // Segmentation is not given up for that.
  const auto before = a_->counters().super_packets_sent;
  queue(*a_, b_->local(), 4112, 10);
  queue(*a_, b_->local(), 4112, 11);
  EXPECT_TRUE(a_->flush());
  EXPECT_EQ(a_->counters().super_packets_sent, before + 1);
  expect(*b_, *a_, 10, {4112, 4112});
}

TEST_P(UdpPortOn, GivesItsSocketAwayAndIsDeadAfterwards) {
  const Endpoint at = b_->local();
  const std::uint32_t slot = b_->slot();
  queue(*b_, c_->local(), 64, 1);
  const int descriptor = b_->release();
  ASSERT_GE(descriptor, 0);
  expect(*c_, *b_, 1, {64});

  std::uint16_t id;
  EXPECT_TRUE(b_->reserve(c_->local(), 64, &id).empty());
  EXPECT_TRUE(b_->flush());
  Received out[1];
  EXPECT_EQ(b_->receive(out), 0u);
  EXPECT_EQ(b_->descriptor(), -1);

  // The address stays taken, and what comes meanwhile waits for the next owner.
  int error = 0;
  EXPECT_FALSE(UdpPort::bind(address_, slot, &error));
  EXPECT_EQ(error, EADDRINUSE);
  queue(*a_, at, 64, 2);
  EXPECT_TRUE(a_->flush());
  b_.reset();
  auto heir = UdpPort::adopt(descriptor, &error);
  ASSERT_TRUE(heir) << std::strerror(error);
  EXPECT_EQ(heir->local(), at);
  EXPECT_EQ(heir->slot(), slot);
  expect(*heir, *a_, 2, {64});
  queue(*heir, a_->local(), 64, 3);
  EXPECT_TRUE(heir->flush());
  expect(*a_, *heir, 3, {64});
}

TEST_P(UdpPortOn, WindowFitsTheReceiveBuffer) {
  // As many short packets that travel alone, and as many long ones, as the window says.
  for (const std::size_t size : {std::size_t{20}, std::size_t{284}, kMaxPacket}) {
    const int buffer = 262144;
    ASSERT_EQ(setsockopt(b_->descriptor(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer), 0);
    const std::size_t window = window_of(b_->descriptor());
    const std::size_t fitting = window / window_charge(size);
    for (std::uint32_t i = 0; i < fitting; ++i) {
      queue(*a_, b_->local(), size, i);
      ASSERT_TRUE(a_->flush());
    }
    EXPECT_EQ(take(*b_, fitting, 500).size(), fitting) << size;
  }
  EXPECT_GE(a_->window_bytes(), 4 * window_charge(kMaxPacket));
}

// What a group gets has the hop limit that was asked for, also what was queued before another one.
TEST_P(UdpPortOn, HopLimitOfWhatGoesToGroups) {
  const bool v4 = address_.is_ipv4();
  const Address group = v4 ? ipv4("239.7.7.7") : ipv6("ff12::77");
  int error = 0;
  auto member = UdpPort::join(group, address_, &error);
  if (!member && v4) FAIL() << std::strerror(error);
  if (!member) GTEST_SKIP() << "no IPv6 multicast on the loopback interface";
  const int on = 1;
  ASSERT_EQ(setsockopt(member->descriptor(), v4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6},
                       v4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, &on, sizeof on),
            0);
  const std::uint8_t hops[] = {1, 7, 7, 255, 1};
  for (std::uint32_t i = 0; i < std::size(hops); ++i) {
    ASSERT_TRUE(a_->use_multicast_hops(hops[i]));
    queue(*a_, {group, kRoceUdpPort}, 64 + 4 * i, i);
  }
  EXPECT_TRUE(a_->flush());
  if (!v4 && a_->counters().packets_lost > 0) GTEST_SKIP() << "no route to IPv6 groups";
  for (const std::uint8_t expected : hops) {
    pollfd waiting{member->descriptor(), POLLIN, 0};
    ASSERT_EQ(poll(&waiting, 1, 2000), 1);
    std::byte packet[256];
    iovec part{packet, sizeof packet};
    alignas(cmsghdr) std::byte control[256];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ASSERT_GT(recvmsg(member->descriptor(), &message, 0), 0);
    int got = -1;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
      if (at->cmsg_type == (v4 ? IP_TTL : IPV6_HOPLIMIT)) {
        std::memcpy(&got, CMSG_DATA(at), sizeof got);
      }
    }
    EXPECT_EQ(got, expected);
  }
}

TEST_P(UdpPortOn, DescriptorPollsAndDoesNotLeakIntoPrograms) {
  EXPECT_NE(fcntl(a_->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  pollfd waiting{b_->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  queue(*a_, b_->local(), 64, 1);
  EXPECT_TRUE(a_->flush());
  EXPECT_EQ(poll(&waiting, 1, 1000), 1);
}

TEST_P(UdpPortOn, ProgramsOfOneAddressTakeTheFirstFreeSlots) {
  int error = 0;
  auto first = bind_first_free_slot(address_, &error);
  ASSERT_TRUE(first) << std::strerror(error);
  auto second = bind_first_free_slot(address_, &error);
  ASSERT_TRUE(second) << std::strerror(error);
  if (in_own_network_namespace()) {
    EXPECT_EQ(first->slot(), 0u);
    EXPECT_EQ(first->local().udp_port, kRoceUdpPort);
    EXPECT_EQ(second->slot(), 4u);  // 1 to 3 are the fixture's
  }
  EXPECT_NE(first->slot(), second->slot());
  EXPECT_EQ(second->local().udp_port, udp_port_of_slot(second->slot()));
  const std::uint32_t freed = first->slot();
  first.reset();
  auto third = bind_first_free_slot(address_, &error);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->slot(), freed);
}

TEST(UdpPort, RefusesAddressesThatAreNotOurs) {
  int error = 0;
  EXPECT_FALSE(UdpPort::bind(Address{}, 1, &error));
  EXPECT_EQ(error, EINVAL);
  EXPECT_FALSE(UdpPort::bind(ipv4("0.0.0.0"), 1, &error));
  EXPECT_EQ(error, EINVAL);
  EXPECT_FALSE(UdpPort::bind(ipv4("127.0.0.1"), kMaxSlot + 1, &error));
  EXPECT_EQ(error, EINVAL);
  EXPECT_FALSE(UdpPort::bind(ipv4("192.0.2.1"), 1, &error));
  EXPECT_EQ(error, EADDRNOTAVAIL);
  EXPECT_FALSE(bind_first_free_slot(ipv4("192.0.2.1"), &error));
  EXPECT_EQ(error, EADDRNOTAVAIL);
}

TEST(UdpPort, AdoptsOnlySocketsOfASlot) {
  auto refused = [](int descriptor) {
    int error = 0;
    EXPECT_FALSE(UdpPort::adopt(descriptor, &error));
    const bool still_ours = fcntl(descriptor, F_GETFD) >= 0;
    if (still_ours) close(descriptor);
    return error;
  };
  EXPECT_EQ(refused(-1), EBADF);
  EXPECT_EQ(refused(socket(AF_INET, SOCK_STREAM, 0)), EINVAL);
  EXPECT_EQ(refused(socket(AF_INET, SOCK_DGRAM, 0)), EINVAL) << "not bound";
  EXPECT_EQ(refused(socket(AF_UNIX, SOCK_DGRAM, 0)), EINVAL);
  const int other = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(refused(other), EINVAL) << "an ephemeral port";
}

// Packets that wait for an address resolution hold the send buffer.
TEST(UdpPort, AFullSocketIsNoErrorAndLaterWorks) {
  if (!in_own_network_namespace() || !run_ip("link add ferry0 type veth peer name ferry1") ||
      !run_ip("addr add 10.77.0.1/24 dev ferry0") || !run_ip("link set ferry0 up") ||
      !run_ip("link set ferry1 up")) {
    GTEST_SKIP() << "needs a network namespace of its own and veth";
  }
  int error = 0;
  auto port = UdpPort::bind(ipv4("10.77.0.1"), 1, &error);
  ASSERT_TRUE(port) << std::strerror(error);
  const int small = 16384;
  ASSERT_EQ(setsockopt(port->descriptor(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  const Endpoint silent{ipv4("10.77.0.2"), 4791};
  std::uint16_t id;
  bool full = false;
  std::size_t reserved = 0;
  for (int i = 0; i < 400; ++i) {
    const auto out = port->reserve(silent, 1040, &id);
    if (out.empty()) {
      full = true;
      break;
    }
    ++reserved;
    std::memset(out.data(), i, out.size());
  }
  EXPECT_TRUE(full) << "the queue has no end";
  EXPECT_FALSE(port->flush());
  EXPECT_LT(port->counters().packets_sent, reserved);
  EXPECT_EQ(port->counters().packets_lost, 0u);

  ASSERT_TRUE(run_ip("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:01 dev ferry0"));
  const auto end = Clock::now() + std::chrono::seconds(5);
  while (!port->flush() && Clock::now() < end) usleep(1000);
  EXPECT_TRUE(port->flush());
  EXPECT_EQ(port->counters().packets_sent, reserved);
  EXPECT_FALSE(port->reserve(silent, 1040, &id).empty());
}

TEST(UdpPort, LinkLocalAddressesFindTheirInterface) {
  if (!in_own_network_namespace() || !run_ip("link add local0 type veth peer name local1") ||
      !run_ip("addr add fe80::77:1/64 dev local0 nodad") || !run_ip("link set local0 up") ||
      !run_ip("link set local1 up")) {
    GTEST_SKIP() << "needs a network namespace of its own and veth";
  }
  int error = 0;
  auto a = UdpPort::bind(ipv6("fe80::77:1"), 1, &error);
  ASSERT_TRUE(a) << std::strerror(error);
  auto b = UdpPort::bind(ipv6("fe80::77:1"), 2, &error);
  ASSERT_TRUE(b) << std::strerror(error);
  auto again = UdpPort::adopt(a->release(), &error);
  ASSERT_TRUE(again) << std::strerror(error);
  queue(*again, b->local(), 64, 1);
  EXPECT_TRUE(again->flush());
  EXPECT_EQ(again->counters().packets_lost, 0u);
  EXPECT_EQ(take(*b, 1).size(), 1u);
}

// NICs send RoCEv2 over IPv6 without a UDP checksum.
TEST(UdpPort, TakesIpv6PacketsWithoutAChecksum) {
  int error = 0;
  std::unique_ptr<UdpPort> port;
  for (std::uint32_t slot = 1; !port && slot < 100; ++slot) {
    port = UdpPort::bind(ipv6("::1"), slot, &error);
  }
  ASSERT_TRUE(port);
  const int sender = socket(AF_INET6, SOCK_DGRAM, 0);
  const int on = 1;
  ASSERT_EQ(setsockopt(sender, SOL_UDP, UDP_NO_CHECK6_TX, &on, sizeof on), 0);
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  to.sin6_port = htons(port->local().udp_port);
  const char bytes[64] = {};
  ASSERT_EQ(sendto(sender, bytes, sizeof bytes, 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
            64);
  EXPECT_EQ(take(*port, 1).size(), 1u);
  close(sender);
}

}  // namespace
}  // namespace ferry::port
