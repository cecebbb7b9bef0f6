#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "port/endpoint.h"
#include "port/port.h"
#include "port/udp_close_watch.h"

namespace ferry::gsi {

// UDP port 4791 of addresses where no RNIC of slot 0 has it. Who holds it takes messages for QP 1
// (local.h), and passes on what is for other slots (wire/envelope.h). Not thread-safe.
class Holder {
 public:
  using Bind = std::function<std::unique_ptr<port::Port>(const port::Address&, int* error)>;
  // `watches`: port_was_freed() tells when others let go of a port that is wanted.
  Holder(Bind bind, bool watches) : bind_(std::move(bind)), watches_(watches) {}

  // Holds the port of these addresses, as far as nobody else does, and lets go of all others. False:
  // somebody else holds one; to be tried again when it was freed, or in a while.
  bool hold(const std::vector<port::Address>& wanted);
  void let_go() { hold({}); }
  // Some process of the network namespace has let go of UDP port 4791 of some address.
  bool port_was_freed();
  // Readable when that may be so; -1: it is not being watched.
  int watch_descriptor() const { return watch_.descriptor(); }

  const std::map<port::Address, std::unique_ptr<port::Port>>& ports() const { return ports_; }

  // A forked child: the ports are its parent's.
  void abandon();

 private:
  const Bind bind_;
  const bool watches_;
  std::map<port::Address, std::unique_ptr<port::Port>> ports_;
  port::UdpCloseWatch watch_;  // while others hold a port that is wanted
};

}  // namespace ferry::gsi
