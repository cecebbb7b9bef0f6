#pragma once

#include <functional>
#include <map>
#include <vector>

#include "events.h"
#include "transport/fake_host.h"

// The data network: sockets, each with at most one reader, and links that lose, double and reorder
// packets.
namespace ferry::simulation {

using transport::test::Datagram;

class Network {
 public:
  using Reader = std::function<void(const Datagram&)>;

  explicit Network(Events& events, bool trace) : events_(events), trace_(trace) {}

  double loss = 0, duplication = 0, reordering = 0;
  Time delay = microseconds(20);

  // A socket. What arrives waits until somebody reads; 0 as an owner is nobody.
  void bind(const port::Endpoint& at) { sockets_[at]; }
  bool is_bound(const port::Endpoint& at) const { return sockets_.contains(at); }
  void read(const port::Endpoint& at, Reader reader);
  void stop_reading(const port::Endpoint& at);
  void close(const port::Endpoint& at) { sockets_.erase(at); }

  void send(Datagram datagram);
  std::uint64_t packets() const { return packets_; }

 private:
  struct Socket {
    Reader reader;
    std::vector<Datagram> waiting;
  };
  void arrive(const Datagram& datagram);
  void print(const Datagram& datagram, unsigned copies) const;

  Events& events_;
  const bool trace_;
  std::map<port::Endpoint, Socket> sockets_;
  std::uint64_t packets_ = 0;
};

}  // namespace ferry::simulation
