#include "host/guest/configure_nic.h"

#include <fmt/core.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <rdma/rdma_netlink.h>

#include "host/proc/netlink.h"

namespace ferry::host {
namespace {

NetlinkMessage about_link(int index, unsigned flags) {
  auto request = netlink_request(RTM_NEWLINK, 0);
  ifinfomsg head{};
  head.ifi_index = index;
  head.ifi_flags = flags;
  head.ifi_change = flags;
  ::nlmsg_append(request.get(), &head, sizeof head, NLMSG_ALIGNTO);
  return request;
}

std::string result_of_link(Netlink& kernel, const NetlinkMessage& request, const char* what) {
  const int error = kernel.request(*request);
  return error >= 0 ? std::string() : fmt::format("{}: {}", what, ::nl_geterror(error));
}

}  // namespace

std::string make_rdma_device(const RdmaDevice& device, const std::string& interface) {
  Netlink kernel(NETLINK_RDMA);
  if (!kernel.is_there()) return device.name + ": the kernel has no RDMA";
  const auto request = netlink_request(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK), 0);
  ::nla_put_string(request.get(), RDMA_NLDEV_ATTR_DEV_NAME, device.name.c_str());
  ::nla_put_string(request.get(), RDMA_NLDEV_ATTR_LINK_TYPE, device.type.c_str());
  ::nla_put_string(request.get(), RDMA_NLDEV_ATTR_NDEV_NAME, interface.c_str());
  const int error = kernel.request(*request);
  if (error >= 0 || error == -NLE_EXIST) return {};
  return fmt::format("{}: {}", device.name, ::nl_geterror(error));
}

std::string configure_nic(const NicNote& wanted, const Missing& missing, Nic nic,
                          const MakeRdmaDevice& make_device) {
  Netlink kernel(NETLINK_ROUTE);
  std::string first;
  const auto note = [&](std::string problem) {
    if (first.empty()) first = std::move(problem);
  };
  // The kernel renames no interface that is up.
  if (missing.is_renamed && !nic.is_up && !has_interface(wanted.nic.name)) {
    const auto request = about_link(nic.index, 0);
    ::nla_put_string(request.get(), IFLA_IFNAME, wanted.nic.name.c_str());
    const auto problem = result_of_link(kernel, request, "its name");
    if (problem.empty()) nic.name = wanted.nic.name;
    note(problem);
  }
  if (missing.mtu) {
    const auto request = about_link(nic.index, 0);
    ::nla_put_u32(request.get(), IFLA_MTU, static_cast<std::uint32_t>(wanted.mtu));
    note(result_of_link(kernel, request, "its MTU"));
  }
  if (missing.up) note(result_of_link(kernel, about_link(nic.index, IFF_UP), "it does not go up"));
  for (const auto& address : missing.addresses) {
    note(give_address(kernel, address, nic, wanted.nic.name));
  }
  for (const auto& route : missing.routes) note(give_route(kernel, route, nic));
  for (const auto& device : missing.soft_devices) note(make_device(device, nic.name));
  return first;
}

}  // namespace ferry::host
