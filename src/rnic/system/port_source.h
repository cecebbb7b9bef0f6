#pragma once

#include <cstdint>
#include <memory>

#include "port/endpoint.h"
#include "port/port.h"
#include "rnic/system/settings.h"

namespace ferry::rnic {

// Makes the ports of an RNIC: UDP sockets, or those of a simulation.
class PortSource {
 public:
  virtual ~PortSource() = default;
  // The port of `slot` on an address of this host. Null and *error (errno): EADDRINUSE, the slot is
  // taken, or another reason.
  virtual std::unique_ptr<port::Port> bind(const port::Address& address, std::uint32_t slot,
                                           int* error) = 0;
  // Makes a port from a descriptor and takes that over. Null and *error (errno): the descriptor
  // stays the caller's.
  virtual std::unique_ptr<port::Port> adopt(int descriptor, int* error) = 0;
  // A port that receives what is sent to a multicast group, joined on the interface that has
  // `local`. Null and *error (errno): there is none.
  virtual std::unique_ptr<port::Port> join(const port::Address& group, const port::Address& local,
                                           int* error) = 0;
  // Gives the port's descriptor to the caller; -1: it has none. The port is of no use afterwards.
  virtual int release(port::Port& port) = 0;
  // How many packets the faults of the settings have lost, over all of its ports.
  virtual std::uint64_t injected_losses() const { return 0; }
};

// UDP sockets, with the faults that the settings ask for.
std::unique_ptr<PortSource> udp_port_source(const Settings& settings);

}  // namespace ferry::rnic
