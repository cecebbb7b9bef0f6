#include "pipe/network/kernel_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/net_namespace.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/network/netlink.h"

namespace ferry::pipe {
namespace {

std::uint64_t cookie_of(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::size_t ip_size(const SocketAddress& address) {
  return address.family == AF_INET ? 4 : 16;
}

// What the driver asks of its own namespace, where the bridges of containers are.
struct Host {
  UniqueFd name{::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)};
  std::mutex mutex;
  Netlink netlink;
  std::uint64_t cookie = 0;

  Host() {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    cookie = cookie_of(socket.get());
  }
};
Host& host() {
  static Host the_host;
  return the_host;
}

struct Link {
  std::uint32_t index = 0, flags = 0;
  std::uint32_t below = 0;   // IFLA_LINK: the other end of a veth pair, or what a VLAN is of
  std::uint32_t bridge = 0;  // IFLA_MASTER
  std::optional<std::uint32_t> elsewhere;  // IFLA_LINK_NETNSID: `below` is in that namespace
  std::string kind;
  bool has_vlans = false;  // a bridge that keeps VLANs apart
  bool passes_on = true;   // a port of a bridge, to and from all others
};

std::optional<Link> link_of(Netlink& netlink, std::uint32_t index) {
  ifinfomsg head{};
  head.ifi_index = static_cast<int>(index);
  std::optional<Link> found;
  netlink.ask(RTM_GETLINK, 0, Request(head).bytes(), [&](std::span<const std::byte> body) {
    ifinfomsg info{};
    if (body.size() < sizeof info) return;
    std::memcpy(&info, body.data(), sizeof info);
    const Attributes attributes(body.subspan(sizeof info));
    Link link;
    link.index = static_cast<std::uint32_t>(info.ifi_index);
    link.flags = info.ifi_flags;
    link.below = attributes.number(IFLA_LINK).value_or(0);
    link.bridge = attributes.number(IFLA_MASTER).value_or(0);
    link.elsewhere = attributes.number(IFLA_LINK_NETNSID);
    const Attributes of_kind(attributes.find(IFLA_LINKINFO));
    const auto kind = of_kind.find(IFLA_INFO_KIND);
    link.kind.assign(reinterpret_cast<const char*>(kind.data()), kind.size());
    link.kind = link.kind.c_str();  // without the 0
    const Attributes data(of_kind.find(IFLA_INFO_DATA));
    link.has_vlans = link.kind == "bridge" && data.byte(IFLA_BR_VLAN_FILTERING).value_or(0) != 0;
    const Attributes port(of_kind.find(IFLA_INFO_SLAVE_DATA));
    if (link.bridge != 0 && port.find(IFLA_BRPORT_STATE).data() != nullptr) {
      link.passes_on = port.byte(IFLA_BRPORT_STATE) == BR_STATE_FORWARDING &&
                       port.byte(IFLA_BRPORT_ISOLATED).value_or(0) == 0;
    }
    found = link;
  });
  return found;
}

// The VLAN that a bridge gives to what a port sends without a tag. Nothing: it drops that, or the kernel does not say.
std::optional<std::uint16_t> vlan_of(Netlink& netlink, std::uint32_t index) {
  ifinfomsg head{};
  head.ifi_family = AF_BRIDGE;
  Request request(head);
  request.add(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_BRVLAN});
  std::optional<std::uint16_t> vlan;
  netlink.ask(RTM_GETLINK, NLM_F_DUMP, request.bytes(), [&](std::span<const std::byte> body) {
    ifinfomsg info{};
    if (body.size() < sizeof info) return;
    std::memcpy(&info, body.data(), sizeof info);
    if (static_cast<std::uint32_t>(info.ifi_index) != index) return;
    const Attributes bridge(Attributes(body.subspan(sizeof info)).find(IFLA_AF_SPEC));
    bridge.each([&](unsigned type, std::span<const std::byte> value) {
      bridge_vlan_info entry{};
      if (type != IFLA_BRIDGE_VLAN_INFO || value.size() < sizeof entry) return;
      std::memcpy(&entry, value.data(), sizeof entry);
      if (entry.flags & BRIDGE_VLAN_INFO_PVID) vlan = entry.vid;
    });
  });
  return vlan;
}

// Of an interface in the driver's own namespace. One whose frames the bridge does not pass on, or not to every other
// port, is on its own: TCP goes as far as the bridge lets it.
Domain host_domain(const Link& link) {
  const Domain itself{host().cookie, link.index, 0};
  std::optional<Link> bridge;
  if (link.bridge != 0) bridge = link_of(host().netlink, link.bridge);
  if (link.kind == "bridge") bridge = link;
  if (!bridge || bridge->kind != "bridge" || !link.passes_on) return itself;
  if (!bridge->has_vlans) return {host().cookie, bridge->index, 0};
  const auto vlan = vlan_of(host().netlink, link.index);
  return vlan ? Domain{host().cookie, bridge->index, *vlan} : itself;
}

class KernelNamespace : public NetworkNamespace {
 public:
  KernelNamespace(Netlink netlink, Netlink lists, std::uint64_t cookie)
      : netlink_(std::move(netlink)), lists_(std::move(lists)), cookie_(cookie) {}

  std::uint64_t id() const override { return cookie_; }

  bool has(const SocketAddress& address) override {
    const std::lock_guard lock(mutex_);
    return interface_of(address) != 0;
  }

  std::optional<std::vector<SocketAddress>> addresses() override {
    const std::lock_guard lock(mutex_);
    if (has_too_many_) return std::nullopt;
    std::vector<SocketAddress> all;
    const auto add = [&](std::span<const std::byte> body) {
      ifaddrmsg info{};
      if (body.size() < sizeof info) return;
      std::memcpy(&info, body.data(), sizeof info);
      const Attributes attributes(body.subspan(sizeof info));
      SocketAddress address;
      address.family = info.ifa_family;
      // IFA_ADDRESS is the other end's of a link of two.
      auto value = attributes.find(IFA_LOCAL);
      if (value.data() == nullptr) value = attributes.find(IFA_ADDRESS);
      const bool is_ip = address.family == AF_INET || address.family == AF_INET6;
      if (!is_ip || value.size() != ip_size(address)) return;
      std::memcpy(address.ip.data(), value.data(), value.size());
      all.push_back(address);
    };
    has_too_many_ =
        !lists_.ask(RTM_GETADDR, NLM_F_DUMP, Request(ifaddrmsg{}).bytes(), add, kMostAddresses);
    if (has_too_many_) return std::nullopt;
    return all;
  }

  std::optional<Domain> domain_of(const SocketAddress& address) override {
    const std::lock_guard lock(mutex_);
    return domain(interface_of(address));
  }

  std::optional<Route> route_to(const SocketAddress& address) override {
    const std::lock_guard lock(mutex_);
    std::optional<Route> found;
    std::uint32_t interface = 0;
    SocketAddress source;
    ask_route(address, 0, [&](const rtmsg& route, const Attributes& attributes) {
      const auto preferred = attributes.find(RTA_PREFSRC);
      if (preferred.size() == ip_size(address)) {
        source.family = address.family;
        std::memcpy(source.ip.data(), preferred.data(), preferred.size());
      }
      if (route.rtm_type == RTN_LOCAL) found = Route{true, {}, address};
      if (route.rtm_type != RTN_UNICAST || attributes.find(RTA_GATEWAY).data() != nullptr ||
          attributes.find(RTA_VIA).data() != nullptr) {
        return;
      }
      interface = attributes.number(RTA_OIF).value_or(0);
    });
    if (found) return found;
    const auto where = domain(interface);
    if (!where) return std::nullopt;
    return Route{false, *where, source};
  }

  bool has_bound(int socket, const SocketAddress& address) override {
    if (cookie_of(socket) != cookie_) return false;
    int domain = 0, type = 0, protocol = 0;
    socklen_t size = sizeof(int);
    if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
        ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        ::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 ||
        domain != address.family || type != SOCK_STREAM || protocol != IPPROTO_TCP) {
      return false;
    }
    sockaddr_storage bound{};
    size = sizeof bound;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return false;
    if (domain == AF_INET) {
      const auto& in = reinterpret_cast<const sockaddr_in&>(bound);
      return ntohs(in.sin_port) == address.port && address.port != 0 &&
             std::memcmp(&in.sin_addr, address.ip.data(), 4) == 0;
    }
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(bound);
    return ntohs(in6.sin6_port) == address.port && address.port != 0 &&
           std::memcmp(&in6.sin6_addr, address.ip.data(), 16) == 0;
  }

  bool listens(int socket) override {
    int listening = 0;
    socklen_t size = sizeof listening;
    return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
           listening != 0;
  }

 private:
  // 0: the kernel takes nothing for the address. It is asked for the entry of its table that says so, which has the
  // interface; a dump of all addresses takes as long as whoever has made the namespace likes.
  std::uint32_t interface_of(const SocketAddress& address) {
    std::uint32_t found = 0;
    ask_route(address, RTM_F_FIB_MATCH, [&](const rtmsg& route, const Attributes& attributes) {
      if (route.rtm_type == RTN_LOCAL) found = attributes.number(RTA_OIF).value_or(0);
    });
    return found;
  }

  void ask_route(const SocketAddress& address, unsigned flags,
                 const std::function<void(const rtmsg&, const Attributes&)>& call) {
    rtmsg head{};
    head.rtm_family = static_cast<unsigned char>(address.family);
    head.rtm_dst_len = static_cast<unsigned char>(ip_size(address) * 8);
    head.rtm_flags = flags;
    Request request(head);
    request.add(RTA_DST, address.ip.data(), ip_size(address));
    netlink_.ask(RTM_GETROUTE, 0, request.bytes(), [&](std::span<const std::byte> body) {
      rtmsg route{};
      if (body.size() < sizeof route) return;
      std::memcpy(&route, body.data(), sizeof route);
      call(route, Attributes(body.subspan(sizeof route)));
    });
  }

  std::optional<Domain> domain(std::uint32_t index) {
    const auto link = index == 0 ? std::nullopt : link_of(netlink_, index);
    if (!link || (link->flags & (IFF_LOOPBACK | IFF_UP)) != IFF_UP) return std::nullopt;
    const std::lock_guard lock(host().mutex);
    if (cookie_ == host().cookie) return host_domain(*link);
    // Only what leads to the driver's own namespace can be on a bridge that the driver sees.
    const Domain itself{cookie_, link->index, 0};
    // A number below 0 is none: of either.
    if (link->kind != "veth" || !link->elsewhere || (*link->elsewhere >> 31) != 0 ||
        link->elsewhere != number_of_host()) {
      return itself;
    }
    const auto other_end = link_of(host().netlink, link->below);
    return other_end ? host_domain(*other_end) : itself;
  }

  // By which number this namespace knows the driver's own.
  std::optional<std::uint32_t> number_of_host() {
    rtgenmsg head{};
    Request request(head);
    request.add(NETNSA_FD, std::uint32_t(host().name.get()));
    std::optional<std::uint32_t> number;
    netlink_.ask(RTM_GETNSID, 0, request.bytes(), [&](std::span<const std::byte> body) {
      if (body.size() < NLMSG_ALIGN(sizeof(rtgenmsg))) return;
      number = Attributes(body.subspan(NLMSG_ALIGN(sizeof(rtgenmsg)))).number(NETNSA_NSID);
    });
    return number;
  }

  std::mutex mutex_;
  Netlink netlink_;
  Netlink lists_;              // of its own: a list that is given up stays in the socket
  bool has_too_many_ = false;  // for a list: from then on
  const std::uint64_t cookie_;
};

}  // namespace

std::shared_ptr<NetworkNamespace> network_of(pid_t pid, int pidfd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/net";
  const UniqueFd name(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  pollfd ended{pidfd, POLLIN, 0};
  if (!name || ::poll(&ended, 1, 0) != 0) return nullptr;
  std::shared_ptr<NetworkNamespace> found;
  const auto enter = [&] {
    struct stat theirs {
    }, ours{};
    const bool same = ::fstat(name.get(), &theirs) == 0 && ::fstat(host().name.get(), &ours) == 0 &&
                      theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
    if (!same && ::setns(name.get(), CLONE_NEWNET) != 0) return;
    Netlink netlink, lists;
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::uint64_t cookie = cookie_of(socket.get());
    if (netlink.is_open() && lists.is_open() && cookie != 0) {
      found = std::make_shared<KernelNamespace>(std::move(netlink), std::move(lists), cookie);
    }
  };
  try {
    // A thread of its own, which ends there: no other ever is in a foreign namespace.
    std::thread(enter).join();
  } catch (const std::system_error&) {
    return nullptr;  // there is no room for a thread
  }
  return found;
}

}  // namespace ferry::pipe
