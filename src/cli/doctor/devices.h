#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/udp_holders.h"
#include "rnic/system/netdev.h"

// What programs under `ferry run` need, and which devices they get.
namespace ferry::cli::doctor {

struct KernelDevice {
  std::string name;
  std::string netdev;  // of rdma_rxe's devices: the interface that they are on
};

struct DeviceFacts {
  std::string verbs_problem;    // empty: libibverbs can be loaded
  std::string library;          // path of libferry.so
  std::string library_problem;  // a line; empty: it can be preloaded
  std::vector<rnic::Netdev> netdevs;
  std::vector<KernelDevice> kernel_devices;
  std::vector<UdpHolder> holders;  // of UDP port 4791
  bool is_root = false;            // root may see which process has a socket
};

DeviceFacts device_facts();
Findings check_devices(const DeviceFacts& facts);

}  // namespace ferry::cli::doctor
