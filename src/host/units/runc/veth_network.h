#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

// The network of a container whose namespace is given by path (as `ip netns add` makes it): veths
// whose other ends, the ports, are on bridges of the host. It moves with its container: interfaces
// with their index, MAC and MTU, addresses, routes of the main table, and the ports' bridges by name.
// Firewall rules, policy routing and sysctls are not looked at.
//
//   {"netns": PATH, "interfaces": [{"name", "index", "mac", "mtu", "port", "port_mtu", "bridge",
//    "addresses": [arguments of `ip address add`]}], "routes": [arguments of `ip route add`],
//    "routes6": [same, -6]}
namespace ferry::host {

// Throws Failure, naming what cannot be made anew.
nlohmann::json describe_veths(const std::string& netns);

// Whether it can be made on this host. Throws Failure.
void check_veths(const nlohmann::json& network);

// The ports' names on this host: those of the description, unless they are taken.
nlohmann::json with_free_ports(nlohmann::json network);

// Makes all of it, silent: the ports are on no bridge. Throws Failure; remove_veths() cleans up.
void make_veths(const nlohmann::json& network);

// As the network hook does these (lab/network-hook); each may be repeated. Throw Failure.
void hold_veths(const nlohmann::json& network);
void deactivate_veths(const nlohmann::json& network);
void activate_veths(const nlohmann::json& network);
void remove_veths(const nlohmann::json& network);

}  // namespace ferry::host
