#pragma once

#include <cstdint>
#include <memory>

#include "port/port.h"
#include "port/random.h"

namespace ferry::port {

// Packets that are to be lost, for tests: the one injector of faults below the protocol. Each
// packet is lost by itself, before it becomes part of a super-packet and after it has been taken
// out of one: a rule of a firewall would drop the whole super-packet.
//
// One of these belongs to each owner of ports (an RNIC, a ferryd's stand-ins), outlives its ports,
// and is covered by its lock. A seed and a sequence of calls give the same losses again.
class Loss {
 public:
  struct Settings {
    double sending = 0;    // probability that a packet which is sent is lost, 0 .. 1
    double receiving = 0;  // that one which has arrived is
    std::uint64_t seed = 1;
  };

  Loss() : Loss(Settings()) {}
  explicit Loss(const Settings& settings) : settings_(settings), random_(settings.seed) {}
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;

  // The port with these losses. Where none are asked for it is the port itself, so that no packet
  // pays for them. Null stays null.
  std::unique_ptr<Port> on(std::unique_ptr<Port> port);

  // Packets lost so far, on all ports.
  std::uint64_t packets() const { return packets_; }

 private:
  class LossyPort;
  const Settings settings_;
  SplitMix64 random_;
  std::uint64_t packets_ = 0;
};

}  // namespace ferry::port
