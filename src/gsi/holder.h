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

// Holds UDP port 4791 of addresses where no RNIC of slot 0 has it. Whoever holds the port takes
// messages for QP 1 (local.h), and passes on packets for other slots (wire/envelope.h). Not
// thread-safe.
class Holder {
 public:
  using Bind = std::function<std::unique_ptr<port::Port>(const port::Address&, int* error)>;
  // `watches`: port_was_freed() tells that others have let go of a port that is wanted.
  Holder(Bind bind, bool watches) : bind_(std::move(bind)), watches_(watches) {}

  // Binds the port of these addresses where nobody else has it, and closes those of all others.
  // False: a port is missing. The caller tries again when port_was_freed(), or after a while.
  bool hold(const std::vector<port::Address>& wanted);
  void let_go() { hold({}); }
  // True: since the last call some process of the network namespace has let go of UDP port 4791 of
  // some address.
  bool port_was_freed();
  // Readable when port_was_freed() may be true; -1: nothing is watched.
  int watch_descriptor() const { return watch_.descriptor(); }

  const std::map<port::Address, std::unique_ptr<port::Port>>& ports() const { return ports_; }

  // For a forked child, whose parent has the ports: closes this process's copies only.
  void abandon();

 private:
  const Bind bind_;
  const bool watches_;
  std::map<port::Address, std::unique_ptr<port::Port>> ports_;
  port::UdpCloseWatch watch_;  // while others hold a port that is wanted
};

}  // namespace ferry::gsi
