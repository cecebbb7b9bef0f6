#pragma once

namespace ferry::port {

// True when this process has a network namespace to itself, with loopback up; false without the
// privilege for that.
bool in_own_network_namespace();
bool set_mtu(const char* interface, int mtu);
// Runs a command of iproute2.
bool run_ip(const char* arguments);

}  // namespace ferry::port
