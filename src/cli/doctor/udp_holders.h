#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "port/endpoint.h"

namespace ferry::cli::doctor {

// A UDP socket that is bound to a port.
struct UdpHolder {
  port::Address address;
  bool any_address = false;  // bound to all addresses of its family; `address` is of no use then
  uid_t user = 0;
  pid_t pid = 0;           // 0: the kernel has it, or a process into which this user may not look
  std::string program;     // of the process
  bool is_ferrys = false;  // the process is root's ferryd, or has libferry.so
};

// The sockets of this network namespace that are bound to `port`, by the kernel's lists in `proc`,
// which is /proc outside of tests.
std::vector<UdpHolder> udp_holders(std::uint16_t port, const std::string& proc);

}  // namespace ferry::cli::doctor
