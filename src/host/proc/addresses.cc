#include "host/proc/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

namespace ferry::host {

InterfaceAddresses addresses_of_interfaces() {
  InterfaceAddresses all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    port::Address address;
    if (each->ifa_addr->sa_family == AF_INET) {
      const auto* of_ipv4 = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      address = port::Address::from_ipv4(ntohl(of_ipv4->sin_addr.s_addr));
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      const auto* of_ipv6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      std::memcpy(address.bytes.data(), &of_ipv6->sin6_addr, address.bytes.size());
    } else {
      continue;
    }
    all.emplace(each->ifa_name, address);
  }
  return all;
}

}  // namespace ferry::host
