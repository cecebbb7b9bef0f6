#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

// The network of a container whose namespace is given by path (as `ip netns add` makes it): veths
// whose other ends, the ports, are on bridges of the host. The network moves with its container:
// interfaces with their index, MAC and MTU, addresses, routes of the main table, and the names of
// the ports' bridges. Firewall rules, policy routing and sysctls do not.
//
//   {"netns": PATH, "interfaces": [{"name", "index", "mac", "mtu", "port", "port_mtu", "bridge",
//    "addresses": [arguments of `ip address add`]}], "routes": [arguments of `ip route add`],
//    "routes6": [same, -6]}
namespace ferry::host {

// Describes the network in this form. Throws Failure, which names what cannot be made anew.
nlohmann::json describe_veths(const std::string& netns);

// Throws Failure unless the network can be made on this host.
void check_veths(const nlohmann::json& network);

// The network with names for the ports that are free on this host.
nlohmann::json with_free_ports(nlohmann::json network);

// Makes the network, silent: the ports are on no bridge. Throws Failure; remove_veths() cleans up.
void make_veths(const nlohmann::json& network);

// Do what the network hook does for these commands (lab/network-hook); each may be repeated. Throw
// Failure.
void hold_veths(const nlohmann::json& network);
void deactivate_veths(const nlohmann::json& network);
void activate_veths(const nlohmann::json& network);
void remove_veths(const nlohmann::json& network);

}  // namespace ferry::host
