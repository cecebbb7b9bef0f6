#pragma once

#include <functional>
#include <utility>

#include "cm/message.h"
#include "port/port.h"
#include "wire/header.h"

namespace ferry::rnic {

// Handles what comes to UDP port 4791 and is not for the QPs of this slot: messages for QP 1, and
// packets of standard NICs for other slots, which it passes on. Used under the engine's lock.
class Forwarder {
 public:
  // Takes the messages for QP 1, which come to UDP port 4791 (gsi/local.h): the MAD, the source and
  // the destination address. Called under the lock. Without this function they are dropped.
  using Management =
      std::function<void(const cm::Mad&, const port::Address& from, const port::Address& to)>;
  void set_management(Management management) { management_ = std::move(management); }

  // Takes a packet that came to `port`. False: it is neither kind. What is passed on leaves with
  // flush().
  bool take(port::Port& port, const port::Received& received, const wire::Packet& packet);
  bool has_work() const { return passed_on_; }
  // Sends what is passed on, all of it to this host. What a socket has no room for is lost.
  void flush(port::Port& port) {
    passed_on_ = false;
    port.flush();
  }

 private:
  Management management_;
  bool passed_on_ = false;  // since the last flush()
};

}  // namespace ferry::rnic
