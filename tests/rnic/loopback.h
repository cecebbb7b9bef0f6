#pragma once

#include <arpa/inet.h>

#include "rig.h"

namespace ferry::rnic::testing {

inline Netdev loopback(bool ipv4, bool ipv6) {
  Netdev netdev;
  netdev.name = "lo";
  netdev.index = 1;
  netdev.mtu = 65536;
  netdev.guid = 1;
  netdev.loopback = true;
  if (ipv4) netdev.addresses.push_back(port::Address::from_ipv4(INADDR_LOOPBACK));
  if (ipv6) {
    port::Address address;
    address.bytes[15] = std::byte{1};
    netdev.addresses.push_back(address);
  }
  return netdev;
}

inline Context::Options options(const Netdev& netdev, const Settings& settings = {}) {
  Context::Options options;
  options.environment = &system_environment();
  options.ports = udp_port_source(settings);
  options.settings = settings;
  options.netdev = netdev;
  return options;
}

// Two RNICs of this process over UDP on the loopback interface, with their progress threads.
struct Pair {
  Node a, b;
  device::Qp* qp_a = nullptr;
  device::Qp* qp_b = nullptr;
  FaultHandler faults;

  void open(const Netdev& netdev, unsigned gid_index = 0, const Settings& settings = {},
            int cqe = 1000) {
    ASSERT_NO_FATAL_FAILURE(a.open(options(netdev, settings), cqe));
    ASSERT_NO_FATAL_FAILURE(b.open(options(netdev, settings), cqe));
    connect(&qp_a, &qp_b, gid_index);
  }
  void connect(device::Qp** x, device::Qp** y, unsigned gid_index = 0) {
    *x = a.create_qp();
    *y = b.create_qp();
    to_init(*x);
    to_init(*y);
    to_rts(*x, (*y)->qpn(), b.gid(gid_index), gid_index);
    to_rts(*y, (*x)->qpn(), a.gid(gid_index), gid_index);
  }
};

}  // namespace ferry::rnic::testing
