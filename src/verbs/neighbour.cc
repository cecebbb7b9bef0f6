#include "verbs/neighbour.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_vlan.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

constexpr std::size_t kMacSize = 6;
constexpr std::uint16_t kNoVlan = 0xffff;
constexpr std::uint16_t kDiscard = 9;  // UDP port
constexpr std::chrono::milliseconds kPause{5};

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  const int number_;
};

struct Address {
  int family;
  const std::uint8_t* bytes;
  std::size_t size;
};

bool is_ipv4_mapped(const ibv_gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

Address address_of(const ibv_gid& gid) {
  if (is_ipv4_mapped(gid)) return {AF_INET, gid.raw + 12, 4};
  return {AF_INET6, gid.raw, 16};
}

// The MAC address of a multicast group (RFC 1112 and 2464); false for other GIDs. The GID of an
// IPv4 group is mapped, with the prefix of multicast or without it.
bool group_mac(const ibv_gid& gid, std::uint8_t (&mac)[kMacSize]) {
  const bool ipv6_group = gid.raw[0] == 0xff;
  const bool carries_ipv4 = gid.raw[10] == 0xff && gid.raw[11] == 0xff;
  const bool ipv4_group = (gid.raw[12] & 0xf0) == 0xe0;
  if (carries_ipv4 && ipv4_group && (ipv6_group || is_ipv4_mapped(gid))) {
    mac[0] = 0x01, mac[1] = 0x00, mac[2] = 0x5e, mac[3] = gid.raw[13] & 0x7f;
    mac[4] = gid.raw[14], mac[5] = gid.raw[15];
    return true;
  }
  if (!ipv6_group) return false;
  mac[0] = mac[1] = 0x33;
  std::memcpy(mac + 2, gid.raw + 12, 4);
  return true;
}

// Sends rtnetlink a request with one attribute, or none; `visit` sees every message of the answer.
// 0 or errno.
template <typename Header, typename Visit>
int ask(std::uint16_t type, std::uint16_t flags, const Header& header, const Address* attribute,
        std::uint16_t attribute_type, Visit visit) {
  Descriptor netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (netlink.get() < 0) return errno;
  struct {
    nlmsghdr message;
    Header header;
    alignas(RTA_ALIGNTO) std::byte attributes[RTA_SPACE(16)];
  } request{};
  request.message.nlmsg_type = type;
  request.message.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  request.message.nlmsg_len = NLMSG_LENGTH(sizeof header);
  request.header = header;
  if (attribute) {
    auto* rta = reinterpret_cast<rtattr*>(reinterpret_cast<std::byte*>(&request) +
                                          NLMSG_ALIGN(request.message.nlmsg_len));
    rta->rta_type = attribute_type;
    rta->rta_len = static_cast<unsigned short>(RTA_LENGTH(attribute->size));
    std::memcpy(RTA_DATA(rta), attribute->bytes, attribute->size);
    request.message.nlmsg_len =
        NLMSG_ALIGN(request.message.nlmsg_len) + static_cast<unsigned>(RTA_SPACE(attribute->size));
  }
  if (::send(netlink.get(), &request, request.message.nlmsg_len, 0) < 0) return errno;
  alignas(nlmsghdr) std::array<char, 32768> answer;
  for (;;) {
    const ssize_t got = ::recv(netlink.get(), answer.data(), answer.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    auto left = static_cast<unsigned>(got);
    for (auto* m = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(m, left);
         m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type == NLMSG_DONE) return 0;
      if (m->nlmsg_type == NLMSG_ERROR) return -static_cast<nlmsgerr*>(NLMSG_DATA(m))->error;
      visit(*m);
      if (!(flags & NLM_F_DUMP)) return 0;
    }
  }
}

// Calls `visit` with the attributes of a message.
template <typename Header, typename Visit>
void for_each_attribute(const nlmsghdr& message, Visit visit) {
  auto* header = static_cast<Header*>(NLMSG_DATA(const_cast<nlmsghdr*>(&message)));
  auto* rta =
      reinterpret_cast<rtattr*>(reinterpret_cast<std::byte*>(header) + NLMSG_ALIGN(sizeof(Header)));
  auto left = static_cast<unsigned>(message.nlmsg_len - NLMSG_LENGTH(sizeof(Header)));
  for (; RTA_OK(rta, left); rta = RTA_NEXT(rta, left)) {
    visit(rta->rta_type, static_cast<const std::uint8_t*>(RTA_DATA(rta)), RTA_PAYLOAD(rta));
  }
}

struct Route {
  int interface = 0;
  unsigned char type = RTN_UNSPEC;
  std::array<std::uint8_t, 16> next_hop{};  // the gateway or the destination itself
};

int find_route(const Address& to, Route* out) {
  rtmsg header{};
  header.rtm_family = static_cast<unsigned char>(to.family);
  header.rtm_dst_len = static_cast<unsigned char>(to.size * 8);
  std::memcpy(out->next_hop.data(), to.bytes, to.size);
  return ask(RTM_GETROUTE, 0, header, &to, RTA_DST, [&](const nlmsghdr& m) {
    out->type = static_cast<rtmsg*>(NLMSG_DATA(const_cast<nlmsghdr*>(&m)))->rtm_type;
    for_each_attribute<rtmsg>(m, [&](int type, const std::uint8_t* data, std::size_t size) {
      if (type == RTA_OIF && size == sizeof out->interface)
        std::memcpy(&out->interface, data, size);
      if (type == RTA_GATEWAY && size == to.size) std::memcpy(out->next_hop.data(), data, size);
    });
  });
}

struct Neighbour {
  bool known = false, has_mac = false;
  std::uint8_t mac[kMacSize];
};

// What the kernel knows of the next hop. 0 or errno.
int find_neighbour(const Route& route, int family, std::size_t address_size, Neighbour* out) {
  constexpr unsigned kUsable =
      NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;
  ndmsg header{};
  header.ndm_family = static_cast<unsigned char>(family);
  return ask(RTM_GETNEIGH, NLM_F_DUMP, header, nullptr, 0, [&](const nlmsghdr& m) {
    const auto* entry = static_cast<ndmsg*>(NLMSG_DATA(const_cast<nlmsghdr*>(&m)));
    if (entry->ndm_ifindex != route.interface || !(entry->ndm_state & kUsable)) return;
    bool same = false;
    Neighbour found{.known = true};
    for_each_attribute<ndmsg>(m, [&](int type, const std::uint8_t* data, std::size_t size) {
      if (type == NDA_DST && size == address_size)
        same = std::memcmp(data, route.next_hop.data(), size) == 0;
      if (type == NDA_LLADDR && size == kMacSize) {
        std::memcpy(found.mac, data, kMacSize);
        found.has_mac = true;
      }
    });
    if (same) *out = found;
  });
}

bool has_neighbours(int interface) {
  ifreq request{};
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || !::if_indextoname(static_cast<unsigned>(interface), request.ifr_name) ||
      ::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) {
    return true;
  }
  return (request.ifr_flags & (IFF_LOOPBACK | IFF_POINTOPOINT | IFF_NOARP)) == 0;
}

// The MAC address of the interface that has this address of the host.
int own_mac(const Address& address, std::uint8_t (&mac)[kMacSize]) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return errno;
  const char* name = nullptr;
  int error = EHOSTUNREACH;
  for (ifaddrs* i = all; i; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != address.family) continue;
    const void* bytes =
        address.family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(i->ifa_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr;
    if (std::memcmp(bytes, address.bytes, address.size) == 0) name = i->ifa_name;
  }
  for (ifaddrs* i = all; i && name; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET || std::strcmp(i->ifa_name, name) != 0)
      continue;
    std::memcpy(mac, reinterpret_cast<sockaddr_ll*>(i->ifa_addr)->sll_addr, kMacSize);
    error = 0;
  }
  ::freeifaddrs(all);
  return error;
}

std::uint16_t vlan_of(int interface) {
  vlan_ioctl_args request{};
  char name[IF_NAMESIZE];
  if (!::if_indextoname(static_cast<unsigned>(interface), name)) return kNoVlan;
  request.cmd = GET_VLAN_VID_CMD;
  std::strncpy(request.device1, name, sizeof request.device1 - 1);
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || ::ioctl(socket.get(), SIOCGIFVLAN, &request) != 0) return kNoVlan;
  return static_cast<std::uint16_t>(request.u.VID);
}

// Sends an empty datagram: to send it, the kernel must resolve the next hop.
void provoke(const Address& to) {
  Descriptor socket(::socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = 0;
  if (to.family == AF_INET) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(kDiscard);
    std::memcpy(&ipv4.sin_addr, to.bytes, to.size);
    size = sizeof ipv4;
  } else {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(kDiscard);
    std::memcpy(&ipv6.sin6_addr, to.bytes, to.size);
    size = sizeof ipv6;
  }
  if (socket.get() >= 0) {
    ::sendto(socket.get(), nullptr, 0, MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address), size);
  }
}

}  // namespace

int resolve_mac(const ibv_gid& gid, std::chrono::milliseconds limit, std::uint8_t (&mac)[kMacSize],
                std::uint16_t* vlan) {
  *vlan = kNoVlan;
  if (group_mac(gid, mac)) return 0;
  const Address to = address_of(gid);
  Route route;
  if (find_route(to, &route) != 0 || route.interface == 0) return ENETUNREACH;
  if (route.type == RTN_LOCAL) return own_mac(to, mac);
  *vlan = vlan_of(route.interface);
  const auto end = std::chrono::steady_clock::now() + limit;
  for (bool asked = false;; asked = true) {
    Neighbour neighbour;
    find_neighbour(route, to.family, to.size, &neighbour);
    if (neighbour.has_mac) {
      std::memcpy(mac, neighbour.mac, kMacSize);
      return 0;
    }
    if (std::chrono::steady_clock::now() >= end) return EHOSTUNREACH;
    if (!asked) provoke(to);
    std::this_thread::sleep_for(kPause);
  }
}

bool next_hop_is_known(const ibv_gid& gid, bool ask) {
  std::uint8_t mac[kMacSize];
  if (group_mac(gid, mac) || (gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80)) return true;
  const Address to = address_of(gid);
  Route route;
  Neighbour neighbour;
  if (find_route(to, &route) != 0 || route.type != RTN_UNICAST ||
      !has_neighbours(route.interface) ||
      find_neighbour(route, to.family, to.size, &neighbour) != 0 || neighbour.known) {
    return true;
  }
  if (ask) provoke(to);
  return false;
}

}  // namespace ferry::verbs
