#pragma once

#include <optional>
#include <span>

#include "port/endpoint.h"
#include "port/port.h"
#include "wire/header.h"

// Standard NICs send to UDP port 4791 whatever the QPN. Whoever holds that port of an address sends
// what is for another slot on to that slot's own UDP port, on the same host, in an envelope
// (docs/wire.md "Packets that reach 4791 for another slot"):
//
//   BTH (opcode 0xC1, to index 0 of the slot)  source GID:128 source UDP port:16 rsvd:16
//   the packet as it came, from its BTH to its ICRC  ICRC
namespace ferry::wire {

// Sends a packet that came to `port` on, if that is UDP port 4791 and the packet is for another
// slot. `bytes` are those of `packet`, whose ICRC was verified. The caller flushes the port. False:
// it is not to be passed on (messages of Ferry's own always go to their slot's port), or there is no
// room.
bool pass_on(port::Port& port, const Packet& packet, std::span<const std::byte> bytes,
             const port::Endpoint& from);

// A packet that was passed on, as it came to the host.
struct Passed {
  Packet packet;
  port::Endpoint from;
};

// What is in an envelope that came `from` there to the port at `local`. Nothing when it did not come
// from UDP port 4791 of the same address, or is not for the slot of `local`, or what it holds is not
// what is passed on.
std::optional<Passed> open_envelope(const Packet& envelope, const port::Endpoint& from,
                                    const port::Endpoint& local);

}  // namespace ferry::wire
