#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "host/journal/process_slots.h"

// Peers that speak no migration messages (docs/standard_peers.md): what a move has to know of them
// before the program is stopped.
namespace ferry::host {

// Connected QPs by the class of their peer. `undecided`: QPs whose peers are still being asked.
struct Peers {
  std::vector<device::QpStatus> standard, undecided;
};
Peers peers_of(const std::vector<agent::ContextStatus>& contexts);

// How long a move may keep peers waiting, as it is estimated beforehand.
struct Waiting {
  std::chrono::milliseconds blackout{};
  // The part of it in which nobody answers: from when the old host leaves the network until the
  // program goes on.
  std::chrono::milliseconds silence{};
};
// For a program, or a group, of so many resident bytes.
Waiting expected_waiting(std::uint64_t resident_bytes);

// Gives one line about the first of these QPs whose peer would give up meanwhile; empty: none would.
std::string impatient(const std::vector<device::QpStatus>& standard, const Waiting& expected);

// "peer 10.78.2.1 of QP 0x000123"
std::string peer_text(const device::QpStatus& qp);

// The slots in which QPs of standard peers are, by context: they must be the same at the new place.
std::vector<ContextSlots> places_to_keep(const std::vector<agent::ContextStatus>& contexts);

}  // namespace ferry::host
