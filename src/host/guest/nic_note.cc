#include "host/guest/nic_note.h"

#include <fmt/format.h>
#include <linux/netlink.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "host/journal/decision_log.h"
#include "host/proc/netlink.h"

namespace ferry::host {
namespace {

using nlohmann::json;

template <typename Item>
std::vector<Item> without(const std::vector<Item>& all, const std::vector<Item>& there) {
  std::vector<Item> rest;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rest), [&](const Item& item) {
    return std::find(there.begin(), there.end(), item) == there.end();
  });
  return rest;
}

json to_json(const std::vector<IpItem>& items) {
  json all = json::array();
  for (const auto& item : items) all.push_back({item.key, item.message});
  return all;
}

std::vector<IpItem> items_of(const json& items) {
  std::vector<IpItem> all;
  for (const auto& item : items) {
    all.push_back({item.at(0).get<std::string>(), item.at(1).get<std::vector<std::uint8_t>>()});
  }
  return all;
}

}  // namespace

NicNote look_at_nic(const Nic& nic, const std::string& sysfs) {
  NicNote note;
  note.nic = nic;
  note.is_hardware = is_hardware(nic.name);
  note.boot = stamp_now().boot;
  note.mtu = mtu_of(nic.name);
  Netlink kernel(NETLINK_ROUTE);
  note.addresses = addresses_of(kernel, nic);
  if (nic.is_up) note.routes = routes_of(kernel, nic);
  for (auto& device : rdma_devices_on(nic.name, sysfs)) {
    if (!device.type.empty()) note.soft_devices.push_back(std::move(device));
  }
  return note;
}

Missing missing_of(const NicNote& wanted, const NicNote& now) {
  Missing missing;
  missing.is_renamed = now.nic.name != wanted.nic.name;
  missing.mtu = now.mtu != wanted.mtu;
  missing.up = wanted.nic.is_up && !now.nic.is_up;
  missing.addresses = without(wanted.addresses, now.addresses);
  missing.routes = without(wanted.routes, now.routes);
  missing.soft_devices = without(wanted.soft_devices, now.soft_devices);
  return missing;
}

std::string Missing::text() const {
  std::vector<std::string> parts;
  if (is_renamed) parts.emplace_back("its name");
  if (mtu) parts.emplace_back("its MTU");
  if (up) parts.emplace_back("to be up");
  for (const auto& address : addresses) parts.push_back(address.key);
  for (const auto& route : routes) parts.push_back("the route " + route.key);
  for (const auto& device : soft_devices) parts.push_back("the RDMA device " + device.name);
  return fmt::format("{}", fmt::join(parts, ", "));
}

json to_json(const NicNote& note) {
  json devices = json::array();
  for (const auto& device : note.soft_devices) devices.push_back({device.name, device.type});
  return {{"name", note.nic.name},
          {"mac", note.nic.mac},
          {"index", note.nic.index},
          {"hardware", note.is_hardware},
          {"boot", note.boot},
          {"mtu", note.mtu},
          {"up", note.nic.is_up},
          {"addresses", to_json(note.addresses)},
          {"routes", to_json(note.routes)},
          {"rdma", std::move(devices)}};
}

NicNote nic_note_of(const json& note) {
  NicNote read;
  read.nic = {note.at("name").get<std::string>(), note.at("mac").get<std::string>(),
              note.at("index").get<int>(), note.at("up").get<bool>()};
  read.is_hardware = note.at("hardware").get<bool>();
  read.boot = note.at("boot").get<std::uint64_t>();
  read.mtu = note.at("mtu").get<int>();
  read.addresses = items_of(note.at("addresses"));
  read.routes = items_of(note.at("routes"));
  for (const auto& device : note.at("rdma")) {
    read.soft_devices.push_back({device.at(0).get<std::string>(), device.at(1).get<std::string>()});
  }
  return read;
}

}  // namespace ferry::host
