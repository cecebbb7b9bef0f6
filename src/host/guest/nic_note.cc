#include "host/guest/nic_note.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"
#include "host/journal/decision_log.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLookLimit{10};
constexpr std::uint64_t kForever = 0xffffffff;  // seconds, as ip(8) prints it

// The array that `ip -json` prints.
json ask(const std::string& ip, std::vector<std::string> words) {
  words.insert(words.begin(), {ip, "-json", "-details"});
  const Outcome outcome = run({words, {}, {}}, kLookLimit);
  const std::string what = fmt::format("{}", fmt::join(words, " "));
  if (!outcome.ok()) throw Failure(fmt::format("{}: {}", what, one_line(outcome.err)));
  json answer = json_or_discarded(outcome.out.empty() ? "[]" : outcome.out);
  if (!answer.is_array()) throw Failure(fmt::format("{} prints no JSON array", what));
  return answer;
}

bool has_flag(const json& item, const char* name) {
  const auto found = item.find(name);
  return found != item.end() && found->is_boolean() && found->get<bool>();
}

std::string text_of(const json& item, const char* name) {
  return item.value(name, std::string());
}

void add_word(std::string* words, const char* name, const std::string& value) {
  if (!value.empty()) *words += fmt::format(" {} {}", name, value);
}

// The kernel makes link-local addresses by itself, and privacy extensions their temporary ones.
bool is_own_address(const json& address) {
  return (text_of(address, "family") == "inet6" && text_of(address, "scope") == "link") ||
         has_flag(address, "temporary");
}

IpItem address_of(const json& address, const std::string& interface) {
  const bool is_ipv6 = text_of(address, "family") == "inet6";
  const std::string local = text_of(address, "local"), peer = text_of(address, "address");
  const int length = address.value("prefixlen", is_ipv6 ? 128 : 32);
  IpItem item;
  item.key = peer.empty() ? fmt::format("{}/{}", local, length)
                          : fmt::format("{} peer {}/{}", local, peer, length);
  add_word(&item.rest, "broadcast", text_of(address, "broadcast"));
  if (!is_ipv6) add_word(&item.rest, "scope", text_of(address, "scope"));
  if (const auto label = text_of(address, "label"); label != interface) {
    add_word(&item.rest, "label", label);
  }
  if (const auto metric = address.value("metric", 0u); metric != 0) {
    add_word(&item.rest, "metric", std::to_string(metric));
  }
  const auto valid = address.value("valid_life_time", kForever);
  if (valid != kForever) {
    const auto preferred = address.value("preferred_life_time", valid);
    item.rest += fmt::format(" valid_lft {} preferred_lft {}", valid, preferred);
  }
  if (has_flag(address, "noprefixroute")) item.rest += " noprefixroute";
  // The address was this machine's a moment ago: nobody else has it, and programs wait for it.
  if (is_ipv6) item.rest += " nodad";
  return item;
}

// The kernel makes some routes by itself, and others when a router advertises them.
bool is_own_route(const json& route) {
  const std::string protocol = text_of(route, "protocol");
  return protocol == "kernel" || protocol == "ra" || protocol == "redirect" ||
         text_of(route, "table") == "local" || route.contains("nexthops");
}

IpItem route_of(const json& route) {
  IpItem item;
  std::string dst = text_of(route, "dst");
  const std::string via = text_of(route, "gateway");
  const bool is_ipv6 = route.contains("pref") || (dst + via).find(':') != std::string::npos;
  if (is_ipv6 && dst == "default") dst = "::/0";
  if (const auto type = text_of(route, "type"); type != "unicast") item.key = type + " ";
  item.key += dst;
  if (const auto other = route.find("via"); other != route.end()) {
    item.key += fmt::format(" via {} {}", text_of(*other, "family"), text_of(*other, "host"));
  }
  add_word(&item.key, "via", via);
  add_word(&item.key, "table", text_of(route, "table"));
  if (const auto metric = route.value("metric", 0u); metric != 0) {
    add_word(&item.key, "metric", std::to_string(metric));
  }
  add_word(&item.rest, "proto", text_of(route, "protocol"));
  if (!is_ipv6) add_word(&item.rest, "scope", text_of(route, "scope"));
  add_word(&item.rest, "src", text_of(route, "prefsrc"));
  for (const auto& flag : route.value("flags", json::array())) {
    if (flag == "onlink") item.rest += " onlink";
  }
  for (const auto& metrics : route.value("metrics", json::array())) {
    for (const auto& [name, value] : metrics.items()) {
      if (value.is_number()) item.rest += fmt::format(" {} {}", name, value.dump());
    }
  }
  return item;
}

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
  for (const auto& item : items) all.push_back({item.key, item.rest});
  return all;
}

std::vector<IpItem> items_of(const json& items) {
  std::vector<IpItem> all;
  for (const auto& item : items) {
    all.push_back({item.at(0).get<std::string>(), item.at(1).get<std::string>()});
  }
  return all;
}

}  // namespace

NicNote look_at_nic(const Nic& nic, const std::string& ip, const std::string& sysfs) {
  NicNote note;
  note.nic = nic;
  note.is_hardware = is_hardware(nic.name);
  note.boot = stamp_now().boot;
  try {
    for (const auto& link : ask(ip, {"address", "show", "dev", nic.name})) {
      note.mtu = link.at("mtu").get<int>();
      const auto& flags = link.at("flags");
      note.nic.is_up = std::find(flags.begin(), flags.end(), "UP") != flags.end();
      for (const auto& address : link.at("addr_info")) {
        if (!is_own_address(address)) note.addresses.push_back(address_of(address, nic.name));
      }
    }
    if (note.nic.is_up) {
      for (const auto& route : ask(ip, {"route", "show", "table", "all", "dev", nic.name})) {
        if (!is_own_route(route)) note.routes.push_back(route_of(route));
      }
    }
  } catch (const json::exception& error) {
    throw Failure(fmt::format("ip(8) prints of {} what ferryd does not understand: {}", nic.name,
                              error.what()));
  }
  // Gateways are reached by routes that have none.
  std::stable_partition(note.routes.begin(), note.routes.end(), [](const IpItem& route) {
    return route.key.find(" via ") == std::string::npos;
  });
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

Missing all_of(const NicNote& wanted, const Nic& appeared) {
  NicNote nothing;
  nothing.nic = appeared;
  return missing_of(wanted, nothing);
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

// The kernel renames no interface that is up.
std::string ip_batch(const NicNote& wanted, const Missing& missing, const Nic& now,
                     std::string* name) {
  std::string batch;
  *name = now.name;
  if (missing.is_renamed && !now.is_up && !has_interface(wanted.nic.name)) {
    batch += fmt::format("link set dev {} name {}\n", now.name, wanted.nic.name);
    *name = wanted.nic.name;
  }
  if (missing.mtu) batch += fmt::format("link set dev {} mtu {}\n", *name, wanted.mtu);
  if (missing.up) batch += fmt::format("link set dev {} up\n", *name);
  for (const auto& address : missing.addresses) {
    batch += fmt::format("address add {}{} dev {}\n", address.key, address.rest, *name);
  }
  for (const auto& route : missing.routes) {
    batch += fmt::format("route add {}{} dev {}\n", route.key, route.rest, *name);
  }
  return batch;
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
