#pragma once

#include <optional>
#include <span>

#include "port/endpoint.h"
#include "port/port.h"
#include "wire/header.h"

// Standard NICs send to UDP port 4791 whatever the QPN. The process that holds that port of an
// address passes packets for another slot on to that slot's own UDP port, on the same host, in an
// envelope (docs/wire.md "Packets that reach 4791 for another slot"):
//
//   BTH (opcode 0xC1, to index 0 of the slot)  source GID:128 source UDP port:16 rsvd:16
//   the packet as it came, from its BTH to its ICRC  ICRC
namespace ferry::wire {

// Passes on a packet that came to `port` from `from`, if `port` is UDP port 4791 and the packet is
// for another slot. `bytes` is the whole `packet`, whose ICRC was verified. The caller flushes the
// port. False: the packet is not to be passed on (Ferry's own opcodes never are: they always go to
// their slot's port), is too long for an envelope, or `port` has no room.
bool pass_on(port::Port& port, const Packet& packet, std::span<const std::byte> bytes,
             const port::Endpoint& from);

// A packet that was passed on, as it came to the host.
struct Passed {
  Packet packet;
  port::Endpoint from;  // its first sender
};

// Takes the packet out of an envelope that came from `from` to the port at `local`. Nothing when
// `from` is not UDP port 4791 of the same address, the envelope or its packet is not for the slot
// of `local`, or the packet is not one that pass_on() passes on.
std::optional<Passed> open_envelope(const Packet& envelope, const port::Endpoint& from,
                                    const port::Endpoint& local);

}  // namespace ferry::wire
