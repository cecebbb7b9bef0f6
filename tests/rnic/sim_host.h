#pragma once

#include <map>
#include <memory>
#include <vector>

#include "port/random.h"
#include "port/sim_link.h"
#include "rnic/context.h"
#include "transport/migration/stand_in.h"
#include "wire/icrc.h"

// What RNICs find in a simulation instead of a kernel: time, chance, sockets that pass from one
// owner to another, and the stand-in of a host's ferryd.
namespace ferry::rnic::testing {

class SimEnvironment final : public Environment {
 public:
  SimEnvironment(port::SimNetwork& network, std::uint64_t seed)
      : network_(network), random_(seed) {}
  transport::Time now() override { return network_.now(); }
  transport::Time wall_clock() override { return network_.now() + std::chrono::hours(24 * 365); }
  std::uint64_t random() override { return random_.next(); }

 private:
  port::SimNetwork& network_;
  port::SplitMix64 random_;
};

// Descriptors are numbers of handles kept here.
class SimPortSource final : public PortSource {
 public:
  explicit SimPortSource(port::SimNetwork& network) : network_(network) {}

  std::unique_ptr<port::Port> bind(const port::Address& address, std::uint32_t slot,
                                   int* error) override {
    auto port = network_.attach({address, port::udp_port_of_slot(slot)});
    *error = port == nullptr ? EADDRINUSE : 0;
    return port;
  }
  std::unique_ptr<port::Port> adopt(int descriptor, int* error) override {
    const auto at = handles_.find(descriptor);
    if (at == handles_.end()) {
      *error = EBADF;
      return nullptr;
    }
    auto port = network_.adopt(std::move(at->second));
    handles_.erase(at);
    *error = port == nullptr ? EBADF : 0;
    return port;
  }
  std::unique_ptr<port::Port> join(const port::Address&, const port::Address&,
                                   int* error) override {
    *error = EOPNOTSUPP;
    return nullptr;
  }
  int release(port::Port& port) override {
    handles_.emplace(next_, static_cast<port::SimPort&>(port).detach());
    return next_++;
  }

 private:
  port::SimNetwork& network_;
  std::map<int, port::SimHandle> handles_;
  int next_ = 1000;
};

// A stand-in with its socket.
class SimStandIn {
 public:
  SimStandIn(PortSource& source, const rnic::Slot& slot, transport::Time now);

  // Takes packets and lets timers run.
  void run(transport::Time now);
  transport::Time next_deadline() const { return stand_in_.next_deadline(); }
  transport::StandIn& stand_in() { return stand_in_; }
  // The socket goes back to its process; the stand-in is of no use any more.
  int release() { return source_.release(*port_); }
  bool well_formed() const { return well_formed_; }

 private:
  void send(const port::Endpoint& to, const wire::Header& header,
            std::span<const std::byte> payload);
  PortSource& source_;
  std::unique_ptr<port::Port> port_;
  transport::StandIn stand_in_;
  bool well_formed_ = true;
};

}  // namespace ferry::rnic::testing
