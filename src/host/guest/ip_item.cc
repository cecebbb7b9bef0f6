#include "host/guest/ip_item.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/failure.h"
#include "host/proc/netlink.h"

namespace ferry::host {
namespace {

constexpr int kDumps = 5;  // so often the kernel is asked when something changes meanwhile
constexpr std::uint32_t kGivenFlags =
    IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR | IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN;

// A message without its netlink header.
using Bytes = std::vector<std::uint8_t>;

template <typename Head, int kLast>
struct Parsed {
  Head head;
  std::array<const nlattr*, kLast + 1> attributes;  // of the message

  const nlattr* operator[](int type) const { return attributes.at(static_cast<std::size_t>(type)); }
  std::uint32_t number(int type, std::uint32_t otherwise) const {
    const nlattr* const found = (*this)[type];
    return found != nullptr && ::nla_len(found) >= 4 ? ::nla_get_u32(found) : otherwise;
  }
};
using Address = Parsed<ifaddrmsg, IFA_MAX>;
using Route = Parsed<rtmsg, RTA_MAX>;

template <typename Head>
const nlattr* attributes_in(const Bytes& message, int* size) {
  const std::size_t before = NLMSG_ALIGN(sizeof(Head));
  *size = message.size() < before ? 0 : static_cast<int>(message.size() - before);
  return reinterpret_cast<const nlattr*>(message.data() + before);
}

// Nothing: it is no such message.
template <typename Head, int kLast>
std::optional<Parsed<Head, kLast>> parse(const Bytes& message) {
  Parsed<Head, kLast> parsed{};
  if (message.size() < sizeof parsed.head) return std::nullopt;
  std::memcpy(&parsed.head, message.data(), sizeof parsed.head);
  int left = 0;
  const nlattr* const first = attributes_in<Head>(message, &left);
  const nlattr* each = nullptr;
  nla_for_each_attr(each, first, left, left) {
    if (::nla_type(each) <= kLast)
      parsed.attributes.at(static_cast<std::size_t>(::nla_type(each))) = each;
  }
  return parsed;
}

// All of a family. Throws Failure.
template <typename Head>
std::vector<Bytes> all_messages(Netlink& kernel, int type, unsigned char family) {
  Head asked{};
  std::memcpy(&asked, &family, sizeof family);  // every head begins with it
  int error = -NLE_DUMP_INTR;
  for (int dumps = 0; error == -NLE_DUMP_INTR && dumps < kDumps; ++dumps) {
    const auto request = netlink_request(type, NLM_F_DUMP);
    ::nlmsg_append(request.get(), &asked, sizeof asked, NLMSG_ALIGNTO);
    std::vector<Bytes> all;
    error = kernel.dump(*request, [&](nlmsghdr* message) {
      const auto* body = static_cast<const std::uint8_t*>(::nlmsg_data(message));
      all.emplace_back(body, body + ::nlmsg_datalen(message));
    });
    if (error >= 0) return all;
  }
  throw Failure(fmt::format("the kernel does not tell of its addresses and routes: {}",
                            ::nl_geterror(error)));
}

std::string ip_text(int family, const void* address, int size) {
  char text[INET6_ADDRSTRLEN];
  if (size != (family == AF_INET6 ? 16 : 4)) return {};
  return ::inet_ntop(family, address, text, sizeof text) == nullptr ? "" : text;
}
std::string ip_text(int family, const nlattr* address) {
  return address == nullptr ? "" : ip_text(family, ::nla_data(address), ::nla_len(address));
}

// The kernel makes link-local addresses by itself, and privacy extensions their temporary ones.
bool is_made_by_kernel(const Address& address) {
  return address.head.ifa_family == AF_INET6 &&
         (address.head.ifa_scope == RT_SCOPE_LINK ||
          (address.number(IFA_FLAGS, address.head.ifa_flags) & IFA_F_TEMPORARY) != 0);
}

// An interface has an address of IPv6 once, whatever its prefix.
std::string key_of(const Address& address) {
  const int family = address.head.ifa_family;
  const int length = address.head.ifa_prefixlen;
  const std::string one = ip_text(family, address[IFA_ADDRESS]);
  const std::string local = ip_text(family, address[IFA_LOCAL]);
  if (family == AF_INET6) return local.empty() ? one : local;
  if (local.empty() || local == one) return fmt::format("{}/{}", one, length);
  return fmt::format("{} peer {}/{}", local, one, length);
}

std::uint32_t table_of(const Route& route) {
  return route.number(RTA_TABLE, route.head.rtm_table);
}

using Attribute = std::function<const nlattr*(int type)>;

std::string gateway_in(int family, const Attribute& attribute) {
  const nlattr* const other = attribute(RTA_VIA);
  if (other == nullptr) return ip_text(family, attribute(RTA_GATEWAY));
  const auto* via = static_cast<const rtvia*>(::nla_data(other));
  const int size = ::nla_len(other) - static_cast<int>(sizeof *via);
  return size < 0 ? std::string() : ip_text(via->rtvia_family, via->rtvia_addr, size);
}

// The ways of a route that has several, in their order. `call` may change the message's own.
void each_hop(const Route& route, const std::function<void(rtnexthop&)>& call) {
  const nlattr* const hops = route[RTA_MULTIPATH];
  if (hops == nullptr) return;
  auto* next = static_cast<std::uint8_t*>(::nla_data(hops));
  for (int left = ::nla_len(hops); left >= static_cast<int>(sizeof(rtnexthop));) {
    auto* const hop = reinterpret_cast<rtnexthop*>(next);
    const int size = NLMSG_ALIGN(hop->rtnh_len);
    if (hop->rtnh_len < sizeof *hop || hop->rtnh_len > left) return;
    call(*hop);
    next += size;
    left -= size;
  }
}

// Of all ways. Empty: there is none.
std::string gateways_of(const Route& route) {
  const int family = route.head.rtm_family;
  std::string all = gateway_in(family, [&](int type) { return route[type]; });
  each_hop(route, [&](rtnexthop& hop) {
    const auto gateway = gateway_in(family, [&](int type) -> const nlattr* {
      return ::nla_find(reinterpret_cast<nlattr*>(&hop + 1),
                        hop.rtnh_len - static_cast<int>(sizeof hop), type);
    });
    all += (all.empty() ? "" : " via ") + gateway;
  });
  return all;
}

bool is_over(const Route& route, const Nic& nic) {
  bool is_any = route.number(RTA_OIF, 0) == static_cast<std::uint32_t>(nic.index);
  bool is_other = false;
  each_hop(route, [&](const rtnexthop& hop) {
    (hop.rtnh_ifindex == nic.index ? is_any : is_other) = true;
  });
  return is_any && !is_other;
}

// The kernel makes some routes by itself, and others when a router advertises them. Beside addresses with
// `noprefixroute`, others make those that look like the kernel's (NetworkManager does). A route over several interfaces
// belongs to none of them.
bool is_given_to(const Route& route, const Nic& nic, bool has_noprefixroute) {
  const auto protocol = route.head.rtm_protocol;
  const bool is_kernels = protocol == RTPROT_KERNEL && !has_noprefixroute;
  const std::string to = ip_text(route.head.rtm_family, route[RTA_DST]);
  return is_over(route, nic) && route[RTA_NH_ID] == nullptr &&
         (route.head.rtm_flags & RTM_F_CLONED) == 0 && !is_kernels && protocol != RTPROT_RA &&
         protocol != RTPROT_REDIRECT && table_of(route) != RT_TABLE_LOCAL &&
         !to.starts_with("fe80:") && !to.starts_with("ff00:");
}

std::string key_of(const Route& route) {
  const rtmsg& head = route.head;
  const std::string to = ip_text(head.rtm_family, route[RTA_DST]);
  std::string key = to.empty() ? (head.rtm_family == AF_INET6 ? "::/0" : "default")
                               : fmt::format("{}/{}", to, head.rtm_dst_len);
  const auto add = [&](const char* name, const auto& value) {
    key += fmt::format(" {} {}", name, value);
  };
  if (const auto from = ip_text(head.rtm_family, route[RTA_SRC]); !from.empty()) {
    add("from", fmt::format("{}/{}", from, head.rtm_src_len));
  }
  if (head.rtm_type != RTN_UNICAST) add("type", head.rtm_type);
  if (const auto gateways = gateways_of(route); !gateways.empty()) add("via", gateways);
  if (head.rtm_tos != 0) add("tos", head.rtm_tos);
  if (table_of(route) != RT_TABLE_MAIN) add("table", table_of(route));
  if (const auto metric = route.number(RTA_PRIORITY, 0); metric != 0) add("metric", metric);
  if (head.rtm_scope != RT_SCOPE_UNIVERSE) add("scope", head.rtm_scope);
  return key;
}

// A request that makes what the message tells of, but for the attributes of the types `without`.
template <typename Head>
NetlinkMessage making(int type, int flags, const Head& head, const Bytes& message,
                      const std::set<int>& without) {
  auto request = netlink_request(type, NLM_F_CREATE | flags);
  ::nlmsg_append(request.get(), const_cast<Head*>(&head), sizeof head, NLMSG_ALIGNTO);
  int left = 0;
  const nlattr* const first = attributes_in<Head>(message, &left);
  const nlattr* each = nullptr;
  nla_for_each_attr(each, first, left, left) {
    if (without.contains(::nla_type(each))) continue;
    ::nla_put(request.get(), each->nla_type, ::nla_len(each), ::nla_data(each));
  }
  return request;
}

std::string result_of(int error, const IpItem& item) {
  return error >= 0 ? std::string() : fmt::format("{}: {}", item.key, ::nl_geterror(error));
}

// The families of which an interface has addresses without a route of the kernel's own.
std::set<int> families_without_routes(Netlink& kernel, const Nic& nic) {
  std::set<int> families;
  for (const auto& item : addresses_of(kernel, nic)) {
    const auto address = parse<ifaddrmsg, IFA_MAX>(item.message);
    if (!address) continue;
    if ((address->number(IFA_FLAGS, address->head.ifa_flags) & IFA_F_NOPREFIXROUTE) != 0) {
      families.insert(address->head.ifa_family);
    }
  }
  return families;
}

}  // namespace

std::vector<IpItem> addresses_of(Netlink& kernel, const Nic& nic) {
  std::vector<IpItem> items;
  for (auto& message : all_messages<ifaddrmsg>(kernel, RTM_GETADDR, AF_UNSPEC)) {
    const auto address = parse<ifaddrmsg, IFA_MAX>(message);
    if (!address || address->head.ifa_index != static_cast<std::uint32_t>(nic.index)) continue;
    if (!is_made_by_kernel(*address)) items.push_back({key_of(*address), std::move(message)});
  }
  return items;
}

std::vector<IpItem> routes_of(Netlink& kernel, const Nic& nic) {
  const auto without_routes = families_without_routes(kernel, nic);
  std::vector<IpItem> items, by_gateways;
  for (const unsigned char family : {AF_INET, AF_INET6}) {
    for (auto& message : all_messages<rtmsg>(kernel, RTM_GETROUTE, family)) {
      const auto route = parse<rtmsg, RTA_MAX>(message);
      if (!route || !is_given_to(*route, nic, without_routes.contains(family))) continue;
      auto& those = gateways_of(*route).empty() ? items : by_gateways;
      those.push_back({key_of(*route), std::move(message)});
    }
  }
  std::move(by_gateways.begin(), by_gateways.end(), std::back_inserter(items));
  return items;
}

std::string give_address(Netlink& kernel, const IpItem& item, const Nic& to,
                         const std::string& former) {
  auto address = parse<ifaddrmsg, IFA_MAX>(item.message);
  if (!address) return item.key + ": its note is damaged";
  std::uint32_t flags = address->number(IFA_FLAGS, address->head.ifa_flags) & kGivenFlags;
  // The address was this machine's a moment ago: nobody else has it, and programs wait for it.
  if (address->head.ifa_family == AF_INET6) flags |= IFA_F_NODAD;
  address->head.ifa_index = static_cast<std::uint32_t>(to.index);
  address->head.ifa_flags = 0;
  std::set<int> without{IFA_FLAGS};
  const nlattr* const label = (*address)[IFA_LABEL];
  const std::string_view text = label == nullptr
                                    ? std::string_view()
                                    : std::string_view(static_cast<const char*>(::nla_data(label)),
                                                       static_cast<std::size_t>(::nla_len(label)));
  if (text.substr(0, text.find('\0')) == former) without.insert(IFA_LABEL);
  const auto request = making(RTM_NEWADDR, NLM_F_EXCL, address->head, item.message, without);
  ::nla_put_u32(request.get(), IFA_FLAGS, flags);
  return result_of(kernel.request(*request), item);
}

std::string give_route(Netlink& kernel, const IpItem& item, const Nic& to) {
  const Bytes message = item.message;  // whose ways go over the other interface from now on
  auto route = parse<rtmsg, RTA_MAX>(message);
  if (!route) return item.key + ": its note is damaged";
  each_hop(*route, [&](rtnexthop& hop) {
    hop.rtnh_ifindex = to.index;
    hop.rtnh_flags &= RTNH_F_ONLINK;
  });
  route->head.rtm_flags &= RTNH_F_ONLINK;
  // IPv4 may have several with the same destination and metric; one of IPv6 that is appended becomes another way.
  const int flags = route->head.rtm_family == AF_INET ? NLM_F_APPEND : NLM_F_EXCL;
  const auto request = making(RTM_NEWROUTE, flags, route->head, message, {RTA_OIF, RTA_CACHEINFO});
  if ((*route)[RTA_MULTIPATH] == nullptr) {
    ::nla_put_u32(request.get(), RTA_OIF, static_cast<std::uint32_t>(to.index));
  }
  rta_cacheinfo cache{};
  if (const nlattr* told = (*route)[RTA_CACHEINFO];
      told != nullptr && ::nla_len(told) >= static_cast<int>(sizeof cache)) {
    std::memcpy(&cache, ::nla_data(told), sizeof cache);
  }
  if (cache.rta_expires > 0) {
    ::nla_put_u32(request.get(), RTA_EXPIRES,
                  static_cast<std::uint32_t>(cache.rta_expires / ::sysconf(_SC_CLK_TCK) + 1));
  }
  return result_of(kernel.request(*request), item);
}

}  // namespace ferry::host
