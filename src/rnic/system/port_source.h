#pragma once

#include <cstdint>
#include <memory>

#include "port/endpoint.h"
#include "port/port.h"
#include "rnic/system/settings.h"

namespace ferry::rnic {

// Makes ports from descriptors and back. The sockets of the real RNIC, and those of simulations.
class PortSource {
 public:
  virtual ~PortSource() = default;
  // The port of `slot` on an address of this host. Null and *error.
  virtual std::unique_ptr<port::Port> bind(const port::Address& address, std::uint32_t slot,
                                           int* error) = 0;
  // Takes the descriptor over; on failure it stays the caller's.
  virtual std::unique_ptr<port::Port> adopt(int descriptor, int* error) = 0;
  // A port that receives what is sent to a multicast group, joined on the interface that has
  // `local`. Null and *error.
  virtual std::unique_ptr<port::Port> join(const port::Address& group, const port::Address& local,
                                           int* error) = 0;
  // The other way: the port is of no use afterwards, the descriptor is the caller's.
  virtual int release(port::Port& port) = 0;
  // Packets that the settings' faults have lost on all of its ports.
  virtual std::uint64_t injected_losses() const { return 0; }
};

// UDP sockets, with the faults that the settings ask for.
std::unique_ptr<PortSource> udp_port_source(const Settings& settings);

}  // namespace ferry::rnic
