#pragma once

#include <cstdint>
#include <memory>

#include "port/port.h"
#include "port/random.h"

namespace ferry::port {

// Loses packets, for tests: the one injector of faults below the protocol. Each packet is lost by
// itself, before it becomes part of a super-packet or after it has been taken out of one: a rule of
// a firewall would drop the whole super-packet.
//
// Each owner of ports (an RNIC, a ferryd's stand-ins) has one Loss, which outlives the ports and
// which the owner's lock covers. The same seed and sequence of calls give the same losses.
class Loss {
 public:
  struct Settings {
    double sending = 0;    // probability that an outgoing packet is lost, 0 .. 1
    double receiving = 0;  // probability that an incoming packet is lost, 0 .. 1
    std::uint64_t seed = 1;
  };

  Loss() : Loss(Settings()) {}
  explicit Loss(const Settings& settings) : settings_(settings), random_(settings.seed) {}
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;

  // Gives `port` these losses. With both probabilities 0 it returns `port` itself, so that no
  // packet pays for them. Null stays null.
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
