#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/protocol.h"

// Peers that speak no migration messages (docs/standard_peers.md): what a move has to heed before
// the program is stopped.
namespace ferry::host {

// Connected QPs by the class of their peer. `undecided`: of peers that are still being asked.
struct Peers {
  std::vector<device::QpStatus> standard, undecided;
};
Peers peers_of(const std::vector<agent::ContextStatus>& contexts);

// How long a move may keep peers waiting, as it is estimated beforehand.
struct Waiting {
  std::chrono::milliseconds blackout{};
  // Of it, when nobody answers: from where the old host leaves the network to where the program
  // goes on.
  std::chrono::milliseconds silence{};
};
// For a program of so many resident bytes.
Waiting expected_waiting(std::uint64_t resident_bytes);

// One line that names the peer which gives up first, when one would; else empty.
std::string impatient(const std::vector<device::QpStatus>& standard, const Waiting& expected);

// "peer 10.78.2.1 of QP 0x000123"
std::string peer_text(const device::QpStatus& qp);

// Where the QPs of standard peers are, by context: what must be the same at the new place.
std::vector<agent::ContextSlots> places_to_keep(const std::vector<agent::ContextStatus>& contexts);

}  // namespace ferry::host
