#include "rnic/system/netdev.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>

namespace ferry::rnic {
namespace {

unsigned mtu_of(const char* name) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return 1500;
  ifreq request{};
  std::strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
  const int error = ioctl(socket, SIOCGIFMTU, &request);
  close(socket);
  return error == 0 && request.ifr_mtu > 0 ? static_cast<unsigned>(request.ifr_mtu) : 1500;
}

// The EUI-64 of an interface, as in IPv6 interface identifiers: the halves of its MAC address
// around FFFE, with the universal bit inverted. An interface without a MAC address gets
// an EUI-64 made of its index.
std::uint64_t guid_of(const unsigned char* mac, std::size_t length, unsigned index) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < length && i < 6; ++i) value = value << 8 | mac[i];
  if (length < 6 || value == 0) return 0x0200'00FF'FE00'0000 | index;
  return ((value >> 24) << 40 | 0xFFFE000000ull | (value & 0xFFFFFF)) ^ 0x0200'0000'0000'0000ull;
}

struct Found {
  Netdev netdev;
  bool up = false;
  bool has_ipv4 = false, has_ipv6 = false;
  port::Address ipv4, ipv6;
};

void note_address(const sockaddr& address, Found* found) {
  if (address.sa_family == AF_INET && !found->has_ipv4) {
    found->has_ipv4 = true;
    found->ipv4 = port::Address::from_ipv4(
        ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  } else if (address.sa_family == AF_INET6 && !found->has_ipv6) {
    const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&ipv6)) return;
    found->has_ipv6 = true;
    std::memcpy(found->ipv6.bytes.data(), &ipv6, 16);
  } else if (address.sa_family == AF_PACKET) {
    const auto& link = reinterpret_cast<const sockaddr_ll&>(address);
    found->netdev.guid = guid_of(link.sll_addr, link.sll_halen, found->netdev.index);
  }
}

// Once in a program, which may list its devices often.
void complain_of(const std::string& name) {
  static std::atomic_flag has_complained;
  if (has_complained.test_and_set()) return;
  std::fprintf(stderr,
               "ferry: FERRY_NETDEV names %s, and no interface of that name is up and has an "
               "address\n",
               name.c_str());
}

}  // namespace

std::uint32_t payload_mtu(unsigned netdev_mtu) {
  std::uint32_t mtu = kMostMtu;
  while (mtu > kLeastMtu && mtu + kMostHeaders > netdev_mtu) mtu /= 2;
  return mtu;
}

std::vector<Netdev> list_netdevs(const Settings& settings) {
  ifaddrs* addresses = nullptr;
  if (getifaddrs(&addresses) != 0) return {};
  std::map<unsigned, Found> found;  // by interface index
  for (const ifaddrs* at = addresses; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const unsigned index = if_nametoindex(at->ifa_name);
    if (index == 0) continue;
    Found& entry = found[index];
    entry.netdev.name = at->ifa_name;
    entry.netdev.index = index;
    entry.netdev.loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    entry.up = (at->ifa_flags & IFF_UP) != 0;
    note_address(*at->ifa_addr, &entry);
  }
  freeifaddrs(addresses);

  std::vector<Netdev> usable;
  for (auto& [index, entry] : found) {
    if (entry.has_ipv4) {
      entry.netdev.all_addresses.push_back(entry.ipv4);
      if (settings.use_ipv4) entry.netdev.addresses.push_back(entry.ipv4);
    }
    if (entry.has_ipv6) {
      entry.netdev.all_addresses.push_back(entry.ipv6);
      if (settings.use_ipv6) entry.netdev.addresses.push_back(entry.ipv6);
    }
    if (!entry.up || entry.netdev.addresses.empty()) continue;
    if (entry.netdev.guid == 0) entry.netdev.guid = guid_of(nullptr, 0, index);
    entry.netdev.mtu = mtu_of(entry.netdev.name.c_str());
    usable.push_back(std::move(entry.netdev));
  }

  std::vector<Netdev> chosen;
  if (!settings.netdevs.empty()) {
    for (const std::string& name : settings.netdevs) {
      const auto at = std::find_if(usable.begin(), usable.end(),
                                   [&](const Netdev& netdev) { return netdev.name == name; });
      if (at != usable.end()) {
        chosen.push_back(*at);
      } else {
        complain_of(name);
      }
    }
    return chosen;
  }
  for (const Netdev& netdev : usable) {
    if (!netdev.loopback) chosen.push_back(netdev);
  }
  return chosen.empty() ? usable : chosen;
}

}  // namespace ferry::rnic
