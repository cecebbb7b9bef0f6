#pragma once

#include "wire/header.h"

namespace ferry::transport {

// False only in a build for scripts/bench (FERRY_MOVABLE=OFF, preset release-unmovable). There the
// data path of a connection does not test whether the QP is Stopped or Paused, or its peer
// elsewhere, so that a comparison shows what the tests cost (docs/bench.md). Such an RNIC sends no
// migration messages, and refuses to be stopped.
#ifdef FERRY_UNMOVABLE
inline constexpr bool kMovable = false;
#else
inline constexpr bool kMovable = true;
#endif

// Whether a packet is of the migration protocol: it has the opcode kMigration, or is NAK_STOPPED.
inline bool is_migration(const wire::Header& header) {
  return kMovable && (header.opcode == wire::Opcode::kMigration ||
                      (header.opcode == wire::Opcode::kRcAck &&
                       header.aeth.syndrome == wire::syndrome::kNakStopped));
}

}  // namespace ferry::transport
