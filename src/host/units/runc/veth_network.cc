#include "host/units/runc/veth_network.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <net/if.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/unique_fd.h"
#include "host/proc/subprocess.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kForwardingPause{10};
constexpr int kForwardingLooks = 500;  // the kernel sees the carrier of a port late on a busy host

Outcome must(const Command& command, const std::string& what) {
  Outcome outcome = run(command);
  if (outcome.ok()) return outcome;
  throw Failure(fmt::format("cannot {}: {}", what, one_line(outcome.err)));
}

std::vector<std::string> in(const std::string& netns, std::vector<std::string> argv) {
  argv.insert(argv.begin(), {"nsenter", "--net=" + netns});
  return argv;
}

json ask_ip(const std::vector<std::string>& argv) {
  const Outcome outcome = must({argv, {}, {}}, "look at a network");
  json answer = json_or_discarded(outcome.out.empty() ? "[]" : outcome.out);
  if (!answer.is_array()) throw Failure("ip gave a malformed answer");
  return answer;
}

std::string kind_of(const json& link) {
  return link.value("/linkinfo/info_kind"_json_pointer, std::string());
}

// The arguments of `ip address add` for an address; empty: the kernel makes it by itself.
std::string address_arguments(const json& address) {
  const bool is_v6 = address.value("family", "") == "inet6";
  const std::string scope = address.value("scope", "global");
  if (is_v6 && scope == "link") return {};
  std::string text = address.value("local", "");
  if (address.contains("address")) text += " peer " + address.value("address", "");
  text += fmt::format("/{}", address.value("prefixlen", 0));
  if (address.contains("broadcast")) text += " broadcast " + address.value("broadcast", "");
  text += " scope " + scope;
  if (address.value("noprefixroute", false)) text += " noprefixroute";
  return is_v6 ? text + " nodad" : text;
}

// The routes that the kernel has not made from addresses.
json routes_of(const std::string& netns, const std::string& family) {
  const Outcome outcome =
      must({in(netns, {"ip", family, "route", "show", "table", "main"}), {}, {}}, "look at routes");
  json routes = json::array();
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("proto kernel") != std::string::npos) continue;
    std::string route;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word != "linkdown" && word != "dead") route += (route.empty() ? "" : " ") + word;
    }
    if (!route.empty()) routes.push_back(route);
  }
  return routes;
}

json describe_interface(const json& link, const json& host_links) {
  const std::string name = link.value("ifname", "");
  if (kind_of(link) != "veth") {
    throw Failure(fmt::format("its network interface {} is no veth, and cannot be made elsewhere",
                              printable(name)));
  }
  for (const auto& port : host_links) {
    if (kind_of(port) != "veth" || port.value("ifindex", 0) != link.value("link_index", -1) ||
        port.value("link_index", 0) != link.value("ifindex", -1)) {
      continue;
    }
    if (!port.contains("master")) {
      throw Failure(fmt::format("the other end of its network interface {}, {}, is on no bridge",
                                printable(name), port.value("ifname", "")));
    }
    json interface = {{"name", name},
                      {"index", link.at("ifindex")},
                      {"mac", link.at("address")},
                      {"mtu", link.at("mtu")},
                      {"port", port.at("ifname")},
                      {"port_mtu", port.at("mtu")},
                      {"bridge", port.at("master")},
                      {"addresses", json::array()}};
    for (const auto& address : link.value("addr_info", json::array())) {
      if (const auto text = address_arguments(address); !text.empty()) {
        interface["addresses"].push_back(text);
      }
    }
    return interface;
  }
  throw Failure(fmt::format("the other end of its network interface {} is not on this host",
                            printable(name)));
}

bool exists(const std::string& interface) {
  return ::if_nametoindex(interface.c_str()) != 0;
}

void ip_batch(const std::string& netns, const std::string& lines, const std::string& what) {
  if (lines.empty()) return;
  const std::vector<std::string> batch{"ip", "-batch", "-"};
  must({netns.empty() ? batch : in(netns, batch), {}, lines}, what);
}

void nft(const std::string& netns, const std::string& rules) {
  must({in(netns, {"nft", "-f", "-"}), {}, rules}, "set the firewall of " + netns);
}

void await_forwarding(const std::string& port) {
  for (int i = 0; i < kForwardingLooks; ++i) {
    std::ifstream file(fmt::format("/sys/class/net/{}/brport/state", port));
    int state = 0;
    if (file >> state && state == 3) return;
    std::this_thread::sleep_for(kForwardingPause);
  }
}

std::string free_port() {
  std::random_device random;
  std::string name;
  do {
    name = fmt::format("fv{:08x}", random());
  } while (exists(name));
  return name;
}

}  // namespace

json describe_veths(const std::string& netns) {
  const json links = ask_ip(in(netns, {"ip", "-json", "-details", "address", "show"}));
  const json host_links = ask_ip({"ip", "-json", "-details", "link", "show"});
  json network = {{"netns", netns}, {"interfaces", json::array()}};
  for (const auto& link : links) {
    if (link.value("link_type", "") == "loopback") continue;
    network["interfaces"].push_back(describe_interface(link, host_links));
  }
  network["routes"] = routes_of(netns, "-4");
  network["routes6"] = routes_of(netns, "-6");
  return network;
}

void check_veths(const json& network) {
  const std::string netns = network.at("netns");
  if (::access(netns.c_str(), F_OK) == 0) {
    throw Failure(fmt::format("there is a network namespace {} already", netns));
  }
  for (const auto& interface : network.at("interfaces")) {
    const std::string bridge = interface.at("bridge");
    if (!std::filesystem::exists("/sys/class/net/" + bridge + "/bridge")) {
      throw Failure(fmt::format("there is no bridge {}, which its network interface {} is on",
                                printable(bridge),
                                printable(interface.at("name").get<std::string>())));
    }
  }
}

json with_free_ports(json network) {
  for (auto& interface : network.at("interfaces")) {
    if (exists(interface.at("port"))) interface["port"] = free_port();
  }
  return network;
}

void make_veths(const json& network) {
  const std::string netns = network.at("netns");
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(netns).parent_path(), ignored);
  if (!UniqueFd(::open(netns.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444))) {
    throw Failure(fmt::format("cannot make {}: {}", netns, error_text(errno)));
  }
  must({{"unshare", "--net=" + netns, "true"}, {}, {}}, "make network namespace " + netns);
  std::string outside, inside = "link set dev lo up\n", addresses;
  for (const auto& interface : network.at("interfaces")) {
    const std::string name = interface.at("name"), port = interface.at("port"),
                      mac = interface.at("mac");
    outside += fmt::format(
        "link add name {} mtu {} type veth peer name {} index {} address {} mtu {} netns {}\n"
        "link set dev {} addrgenmode none\nlink set dev {} up\n",
        port, interface.at("port_mtu").get<int>(), name, interface.at("index").get<int>(), mac,
        interface.at("mtu").get<int>(), netns, port, port);
    inside += fmt::format("link set dev {} up\n", name);
    for (const auto& address : interface.at("addresses")) {
      addresses += fmt::format("address add {} dev {}\n", address.get<std::string>(), name);
    }
  }
  ip_batch("", outside, "make the network of " + netns);
  for (const auto& interface : network.at("interfaces")) {
    // The host must not answer for its own addresses at this port.
    std::ofstream(fmt::format("/proc/sys/net/ipv4/conf/{}/arp_ignore",
                              interface.at("port").get<std::string>()))
        << "8\n";
  }
  for (const auto& route : network.at("routes")) {
    addresses += fmt::format("route add {}\n", route.get<std::string>());
  }
  for (const auto& route : network.at("routes6")) {
    addresses += fmt::format("-6 route add {}\n", route.get<std::string>());
  }
  ip_batch(netns, inside + addresses, "address the network of " + netns);
}

// What the container's kernel sees of its network while the container is frozen: nothing of its TCP
// connections, which CRIU carries; but peers' RoCE packets, which are for the stand-in.
void hold_veths(const json& network) {
  const std::string ports = fmt::format("{}, {}-{}", port::kRoceUdpPort, port::udp_port_of_slot(1),
                                        port::udp_port_of_slot(port::kMaxSlot));
  nft(network.at("netns"), fmt::format(R"(
add table inet ferry_hold
delete table inet ferry_hold
add table inet ferry_hold
add chain inet ferry_hold in {{ type filter hook prerouting priority raw; }}
add chain inet ferry_hold out {{ type filter hook output priority raw; }}
add rule inet ferry_hold in meta l4proto {{ icmp, ipv6-icmp }} accept
add rule inet ferry_hold in udp dport {{ {} }} accept
add rule inet ferry_hold in iifname != "lo" drop
add rule inet ferry_hold out meta l4proto {{ icmp, ipv6-icmp }} accept
add rule inet ferry_hold out udp sport {{ {} }} accept
add rule inet ferry_hold out oifname != "lo" drop
)",
                                       ports, ports));
}

void deactivate_veths(const json& network) {
  std::string lines;
  for (const auto& interface : network.at("interfaces")) {
    const std::string port = interface.at("port");
    if (exists(port)) lines += fmt::format("link set dev {} nomaster\n", port);
  }
  ip_batch("", lines, "take the container off its network");
}

void activate_veths(const json& network) {
  nft(network.at("netns"), "add table inet ferry_hold\ndelete table inet ferry_hold\n");
  std::string lines;
  for (const auto& interface : network.at("interfaces")) {
    lines += fmt::format("link set dev {} master {}\n", interface.at("port").get<std::string>(),
                         interface.at("bridge").get<std::string>());
  }
  ip_batch("", lines, "join the container's network");
  for (const auto& interface : network.at("interfaces")) await_forwarding(interface.at("port"));
}

void remove_veths(const json& network) {
  // Somebody else may have removed a port, or its namespace.
  std::string what;
  for (const auto& interface : network.at("interfaces")) {
    const std::string port = interface.at("port");
    const Outcome outcome = run({{"ip", "link", "del", "dev", port}, {}, {}});
    if (!outcome.ok() && exists(port)) what = one_line(outcome.err);
  }
  const std::string netns = network.at("netns");
  ::umount2(netns.c_str(), MNT_DETACH);  // a CRIU that is ending may have it open
  ::unlink(netns.c_str());
  if (!what.empty()) throw Failure("cannot remove the container's network: " + what);
}

}  // namespace ferry::host
