#include "host/proc/udp_slots.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/unique_fd.h"
#include "port/slot.h"
#include "port/udp_port.h"

namespace ferry::host {
namespace {

constexpr char kTableHead[] =
    "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode ref\n";

std::vector<UdpSlot> parse(const std::string& lines) {
  std::istringstream table(kTableHead + lines);
  return parse_udp_slots(table, {101, 102, 103});
}

std::string line(const std::string& local, int inode) {
  return "  17: " + local +
         " 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 " +
         std::to_string(inode) + " 2 0000000000000000 0\n";
}

const port::Address kTableLoopback = port::Address::from_ipv4(INADDR_LOOPBACK);

TEST(UdpSlots, AreThePortsOfTheProcessesSockets) {
  const auto slots = parse(line("0100007F:12B7", 101) + line("0100007F:F005", 102) +
                           line("0100007F:F006", 999) +  // of another process
                           line("0100007F:0035", 103));  // no slot's port
  EXPECT_EQ(slots, (std::vector<UdpSlot>{{kTableLoopback, 0}, {kTableLoopback, 5}}));
}

TEST(UdpSlots, OfAddressesOfIpv6) {
  port::Address address;
  ASSERT_EQ(::inet_pton(AF_INET6, "fd00::12", address.bytes.data()), 1);
  EXPECT_EQ(parse(line("000000FD000000000000000012000000:F001", 101)),
            (std::vector<UdpSlot>{{address, 1}}));
}

TEST(UdpSlots, MalformedLinesDoNotCount) {
  for (const char* const local : {"", "0100007F", "0100007F:", "0100007F:XYZ", "01007F:F005",
                                  "0100007G:F005", "0100007F:1F005", ":F005"}) {
    EXPECT_TRUE(parse(line(local, 101)).empty()) << local;
  }
  EXPECT_TRUE(parse("  17: 0100007F:F005\n\n 1").empty());
}

TEST(UdpSlots, OfThisProcess) {
  constexpr std::uint32_t kSlot = 877;
  int error = 0;
  const auto port = port::UdpPort::bind(kTableLoopback, kSlot, &error);
  ASSERT_NE(port, nullptr) << error;
  const auto has = [] {
    const auto slots = udp_slots_of(::getpid());
    return std::find(slots.begin(), slots.end(), UdpSlot{kTableLoopback, kSlot}) != slots.end();
  };
  EXPECT_TRUE(has());
  EXPECT_TRUE(udp_slots_of(1 << 30).empty());
}

// A socket that is bound to a slot of this address, which the host need not have.
UniqueFd bind_freely(std::uint32_t address, std::uint32_t slot) {
  UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  EXPECT_EQ(::setsockopt(socket.get(), IPPROTO_IP, IP_FREEBIND, &on, sizeof on), 0);
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(address);
  local.sin_port = htons(port::udp_port_of_slot(slot));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&local), sizeof local), 0);
  return socket;
}

TEST(UdpSlots, NotOfAnAddressThatTheHostDoesNotHave) {
  constexpr std::uint32_t kForeign = 0xC0000207, kSlot = 876;  // 192.0.2.7
  const UniqueFd foreign = bind_freely(kForeign, kSlot);
  for (const auto& slot : udp_slots_of(::getpid())) EXPECT_NE(slot.slot, kSlot);
}

TEST(UdpSlots, NotOfAProcessInAnotherNetworkNamespace) {
  constexpr std::uint32_t kSlot = 875;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_alone = ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const UniqueFd socket = bind_freely(INADDR_LOOPBACK, kSlot);
    const char ready = is_alone ? 'y' : 'n';
    if (::write(ends[1], &ready, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  const auto slots = udp_slots_of(child);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  for (const int end : ends) ::close(end);
  if (ready == 'n') GTEST_SKIP() << "no network namespace of its own";
  EXPECT_TRUE(slots.empty());
}

}  // namespace
}  // namespace ferry::host
