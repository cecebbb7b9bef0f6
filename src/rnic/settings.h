#pragma once

#include <string>
#include <vector>

#include "transport/connection.h"

// What users may set for the RNIC, by environment variables:
//
//   FERRY_NETDEV=NAME[,NAME]     the network interfaces that become devices, in this order
//   (default: all that are up) FERRY_FAMILY=4|6             use only the interface's IPv4 or IPv6
//   address (default: both) FERRY_MIGRATION=off          behave as an unmodified RoCEv2 NIC: no
//   HELLO, no moves (default: on) FERRY_PAUSED_LIMIT_MS=N      how long a QP waits for a stopped
//   peer before IBV_WC_RETRY_EXC_ERR (default 60000) FERRY_FAULT_LOSS=P           drop packets with
//   probability P, 0..1, on sending (default 0; for tests) FERRY_FAULT_SEED=N           seed of
//   these losses (default 1)
//
// A value that cannot be understood is as good as none; a line on stderr says so.
namespace ferry::rnic {

struct Settings {
  std::vector<std::string> netdevs;
  bool use_ipv4 = true;
  bool use_ipv6 = true;
  transport::MigrationSettings migration;
  double fault_loss = 0;
  unsigned long fault_seed = 1;
};

// Reads the environment.
Settings settings_from_environment();

}  // namespace ferry::rnic
