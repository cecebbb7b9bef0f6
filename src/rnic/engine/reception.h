#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "port/port.h"
#include "rnic/engine/endpoints/forwarder.h"
#include "rnic/engine/endpoints/lanes.h"
#include "rnic/engine/endpoints/multicast.h"
#include "rnic/engine/held_ports.h"
#include "rnic/engine/qp_table.h"
#include "rnic/engine/suspension.h"
#include "wire/header.h"

namespace ferry::rnic {

// Packets that were dropped before they reached a QP, by reason.
struct DropCounters {
  std::uint64_t bad_icrc = 0;   // counts also packets shorter than a header
  std::uint64_t malformed = 0;  // headers or lengths that contradict each other
  std::uint64_t unknown_qp = 0;
};

// Takes packets from the sockets of an RNIC to its QPs. Used under the engine's lock.
class Reception {
 public:
  Reception(Lanes& lanes, const HeldPorts& held_ports, const MulticastGroups& multicast,
            const QpTable& qps, Suspension& suspension)
      : lanes_(lanes),
        held_ports_(held_ports),
        multicast_(multicast),
        qps_(qps),
        suspension_(suspension) {}

  // Returns how many packets came. `all`: looks also at lanes that no QP uses. Sets *more if
  // packets may be left in the sockets.
  std::size_t receive(transport::Time now, bool all, bool* more);

  Forwarder& forwarder() { return forwarder_; }
  const DropCounters& drops() const { return drops_; }

 private:
  bool verify(const port::Received& received, const port::Port& port);
  void handle(Lane& lane, port::Port& port, const port::Received& received, transport::Time now);
  [[gnu::cold]] void handle_other(Lane& lane, port::Port& port, const port::Received& received,
                                  const wire::Packet& packet, transport::Time now);
  QueuePair* find(const Lane& lane, std::uint32_t qpn) const;
  std::size_t receive_held(transport::Time now, bool* more);
  std::size_t receive_multicast(transport::Time now, bool* more);
  void handle_multicast(const MulticastGroups::Group& group, const port::Received& received,
                        transport::Time now);

  Lanes& lanes_;
  const HeldPorts& held_ports_;
  const MulticastGroups& multicast_;
  const QpTable& qps_;
  Suspension& suspension_;
  Forwarder forwarder_;
  DropCounters drops_;
  std::array<port::Received, 64> batch_;
};

}  // namespace ferry::rnic
