#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/guest/ip_item.h"
#include "host/guest/nics.h"

namespace ferry::host {

// How a NIC is configured.
struct NicNote {
  Nic nic;
  bool is_hardware = false;
  std::uint64_t boot = 0;  // of the kernel that gave the index
  int mtu = 0;
  std::vector<IpItem> addresses, routes;  // those that somebody has made
  std::vector<RdmaDevice> soft_devices;
};

// The configuration of an interface now. Throws Failure.
NicNote look_at_nic(const Nic& nic, const std::string& sysfs);

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

nlohmann::json to_json(const NicNote& note);
NicNote nic_note_of(const nlohmann::json& note);  // throws nlohmann::json::exception

}  // namespace ferry::host
