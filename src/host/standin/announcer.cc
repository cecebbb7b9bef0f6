#include "host/standin/announcer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "base/unique_fd.h"
#include "port/address_text.h"
#include "wire/big_endian.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

// The pause before each of the announcements.
constexpr std::array<milliseconds, Announcer::kTimes> kPauses = {
    milliseconds(0), milliseconds(50), milliseconds(150), milliseconds(800), milliseconds(2000)};

constexpr std::size_t kEthernet = 14, kArp = 28, kIpv6 = 40, kAdvertisement = 32;
constexpr std::uint16_t kTypeArp = 0x0806, kTypeIpv6 = 0x86DD;

void put(std::byte* at, std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), at);
}

// The checksum of RFC 1071 over the message and the pseudo header of RFC 8200, section 8.1: the sum
// of both addresses, the length and the next header.
std::uint16_t checksum(std::span<const std::byte> addresses, std::uint32_t next_header,
                       std::span<const std::byte> message) {
  std::uint32_t sum = static_cast<std::uint32_t>(message.size()) + next_header;
  for (const auto part : {addresses, message}) {
    for (std::size_t i = 0; i < part.size(); i += 2) {
      sum += wire::load_be<std::uint16_t>(part.data() + i);
    }
  }
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

std::vector<std::byte> arp(const MacAddress& mac, std::span<const std::byte> ipv4) {
  std::vector<std::byte> frame(kEthernet + kArp);
  std::byte* const at = frame.data();
  std::fill_n(at, 6, std::byte{0xFF});
  put(at + 6, mac);
  wire::store_be(at + 12, kTypeArp);
  std::byte* const request = at + kEthernet;
  wire::store_be(request, std::uint16_t{1});           // Ethernet
  wire::store_be(request + 2, std::uint16_t{0x0800});  // IPv4
  request[4] = std::byte{6};
  request[5] = std::byte{4};
  wire::store_be(request + 6, std::uint16_t{1});  // a request, which nobody answers
  put(request + 8, mac);
  put(request + 14, ipv4);
  put(request + 24, ipv4);
  return frame;
}

std::vector<std::byte> advertisement(const MacAddress& mac, std::span<const std::byte> ipv6) {
  static constexpr std::array<std::byte, 16> kAllNodes = {
      std::byte{0xFF}, std::byte{0x02}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      std::byte{0x01}};
  std::vector<std::byte> frame(kEthernet + kIpv6 + kAdvertisement);
  std::byte* const at = frame.data();
  at[0] = at[1] = std::byte{0x33};
  put(at + 2, std::span(kAllNodes).last(4));
  put(at + 6, mac);
  wire::store_be(at + 12, kTypeIpv6);
  std::byte* const ip = at + kEthernet;
  ip[0] = std::byte{0x60};
  wire::store_be(ip + 4, static_cast<std::uint16_t>(kAdvertisement));
  ip[6] = std::byte{58};   // ICMPv6
  ip[7] = std::byte{255};  // hop limit: no router has forwarded the packet
  put(ip + 8, ipv6);
  put(ip + 24, kAllNodes);
  std::byte* const message = ip + kIpv6;
  message[0] = std::byte{136};
  message[4] = std::byte{0x20};  // override what is known; not solicited
  put(message + 8, ipv6);
  message[24] = std::byte{2};  // option: target link-layer address, of 8 bytes
  message[25] = std::byte{1};
  put(message + 26, mac);
  wire::store_be(message + 2,
                 checksum(std::span(frame).subspan(kEthernet + 8, 32), 58,
                          std::span(frame).subspan(kEthernet + kIpv6, kAdvertisement)));
  return frame;
}

struct Announced {
  int interface = 0;
  std::vector<std::byte> frame;
};

// The announcements of all addresses in this thread's network namespace.
std::vector<Announced> announcements() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw Failure("cannot list addresses: " + error_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::map<std::string, std::pair<int, MacAddress>> devices;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_PACKET) continue;
    sockaddr_ll link{};
    std::memcpy(&link, entry->ifa_addr, sizeof link);
    MacAddress mac{};
    if (link.sll_hatype != ARPHRD_ETHER || link.sll_halen != mac.size()) continue;
    std::memcpy(mac.data(), link.sll_addr, mac.size());
    devices[entry->ifa_name] = {link.sll_ifindex, mac};
  }
  std::vector<Announced> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto device = devices.find(entry->ifa_name);
    if (entry->ifa_addr == nullptr || device == devices.end() || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto& [interface, mac] = device->second;
    found.push_back({interface, announcement(mac, port::to_address(entry->ifa_addr))});
  }
  return found;
}

}  // namespace

std::vector<std::byte> announcement(const MacAddress& mac, const port::Address& address) {
  const std::span<const std::byte> bytes(address.bytes);
  return address.is_ipv4() ? arp(mac, bytes.last(4)) : advertisement(mac, bytes);
}

Announcer::Announcer(std::string netns)
    : netns_(std::move(netns)), thread_([this] { report_failure([this] { run(); }); }) {}

Announcer::~Announcer() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Announcer::run() {
  const UniqueFd netns(::open(netns_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!netns || ::setns(netns.get(), CLONE_NEWNET) != 0) {
    throw Failure(fmt::format("cannot enter network namespace {}: {}", netns_, error_text(errno)));
  }
  const auto all = announcements();
  const UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket) throw Failure("cannot announce addresses: " + error_text(errno));
  for (const auto pause : kPauses) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, pause, [this] { return ending_; })) return;
    }
    for (const auto& [interface, frame] : all) {
      sockaddr_ll to{};
      to.sll_family = AF_PACKET;
      to.sll_ifindex = interface;
      to.sll_halen = 6;
      std::memcpy(to.sll_addr, frame.data(), 6);
      if (::sendto(socket.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to),
                   sizeof to) < 0) {
        throw Failure("cannot announce an address: " + error_text(errno));
      }
    }
  }
}

}  // namespace ferry::host
