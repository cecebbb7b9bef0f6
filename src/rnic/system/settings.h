#pragma once

#include <string>
#include <vector>

#include "port/loss.h"
#include "transport/transport.h"

// What users may set for the RNIC, by environment variables (docs/settings.md has the table):
//
//   FERRY_NETDEV=NAME[,NAME]    the network interfaces that become devices, in this order (default:
//                               all that are up; the loopback interface only if there is no other)
//   FERRY_FAMILY=4|6            use only the interface's IPv4 or IPv6 address (default: both)
//   FERRY_MIGRATION=on|off      off: behave as an unmodified RoCEv2 NIC: no migration messages, all
//                               to UDP port 4791 (default: on)
//   FERRY_PAUSED_LIMIT_MS=N     how long a QP waits for a stopped peer, and for the answer to its
//                               RESUME, before IBV_WC_RETRY_EXC_ERR: 1 to 86400000 (default: 60000)
//   FERRY_HELLO_TRIES=N         HELLOs without an answer, up to 500 ms apart, after which a peer is
//                               taken for an unmodified NIC: 1 to 1000 (default: 12)
//   FERRY_FAULT_LOSS=P          for tests: loses a packet that is sent with probability P, 0 to 1
//                               (default: 0)
//   FERRY_FAULT_RECEIVE_LOSS=P  the same for packets that have arrived
//   FERRY_FAULT_SEED=N          the seed of these losses: 0 to 2^64 - 1 (default: 1)
//   FERRY_PROGRESS_PRIORITY=N   by how much the nice value of the progress thread lies below the
//                               program's, if the process may lower it: 0 to 20 (default: 10)
//
// The RNIC ignores a value that it cannot understand, and says so in a line on stderr.
namespace ferry::rnic {

struct Settings {
  std::vector<std::string> netdevs;
  bool use_ipv4 = true;
  bool use_ipv6 = true;
  transport::MigrationSettings migration;
  unsigned progress_priority = 10;
  port::Loss::Settings loss;
};

// Reads the environment.
Settings settings_from_environment();

}  // namespace ferry::rnic
