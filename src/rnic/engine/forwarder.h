#pragma once

#include <functional>
#include <utility>

#include "cm/message.h"
#include "port/port.h"
#include "wire/header.h"

namespace ferry::rnic {

// What comes to UDP port 4791 and is not for the QPs of this slot: messages for QP 1, and packets of
// standard NICs for other slots, which are passed on. Under the engine's lock.
class Forwarder {
 public:
  // Takes messages for QP 1, which come to slot 0 (gsi/local.h): MAD, the two addresses. Called
  // under the lock. Without one, nobody has QP 1.
  using Management =
      std::function<void(const cm::Mad&, const port::Address& from, const port::Address& to)>;
  void set_management(Management management) { management_ = std::move(management); }

  // False: the packet is neither. What is passed on leaves with flush().
  bool take(port::Port& port, const port::Received& received, const wire::Packet& packet);
  bool has_work() const { return passed_on_; }
  // To this host: what it has no room for is lost.
  void flush(port::Port& port) {
    passed_on_ = false;
    port.flush();
  }

 private:
  Management management_;
  bool passed_on_ = false;  // to be flushed
};

}  // namespace ferry::rnic
