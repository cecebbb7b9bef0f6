#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/guest/nics.h"

// How a NIC is configured, in words of ip(8).
namespace ferry::host {

// What `ip address add` or `ip route add` takes. Two with the same key are the same to the kernel.
struct IpItem {
  std::string key, rest;
  bool operator==(const IpItem& other) const { return key == other.key; }
};

struct NicNote {
  Nic nic;
  bool is_hardware = false;
  std::uint64_t boot = 0;  // of the kernel that gave the index
  int mtu = 0;
  std::vector<IpItem> addresses, routes;  // not those that the kernel makes by itself
  std::vector<RdmaDevice> soft_devices;
};

// The configuration of an interface now. `ip`: the program. Throws Failure.
NicNote look_at_nic(const Nic& nic, const std::string& ip, const std::string& sysfs);

// What of `wanted` an interface lacks that is configured as `now`.
struct Missing {
  bool is_renamed = false;  // it has another name
  bool mtu = false, up = false;
  std::vector<IpItem> addresses, routes;
  std::vector<RdmaDevice> soft_devices;
  bool none() const {
    return !is_renamed && !mtu && !up && addresses.empty() && routes.empty() &&
           soft_devices.empty();
  }
  std::string text() const;  // for people
};
Missing missing_of(const NicNote& wanted, const NicNote& now);
// All of it, for an interface that has just appeared.
Missing all_of(const NicNote& wanted, const Nic& appeared);

// What `ip -batch` reads to make it, and in *name what the interface is called then.
std::string ip_batch(const NicNote& wanted, const Missing& missing, const Nic& now,
                     std::string* name);

nlohmann::json to_json(const NicNote& note);
NicNote nic_note_of(const nlohmann::json& note);  // throws nlohmann::json::exception

}  // namespace ferry::host
