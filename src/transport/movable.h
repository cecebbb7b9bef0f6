#pragma once

#include "wire/header.h"

namespace ferry::transport {

// False in a build of scripts/bench alone (FERRY_MOVABLE=OFF, preset release-unmovable): there the
// data path of a connection does not ask what it asks because the QP may be Stopped or Paused or
// its peer elsewhere, so that the difference shows what that costs (docs/bench.md). Such an RNIC
// sends no migration messages, and refuses to be stopped.
#ifdef FERRY_UNMOVABLE
inline constexpr bool kMovable = false;
#else
inline constexpr bool kMovable = true;
#endif

// Of the migration protocol: an opcode of its own, or an ACK that is NAK_STOPPED.
inline bool is_migration(const wire::Header& header) {
  return kMovable && (header.opcode == wire::Opcode::kMigration ||
                      (header.opcode == wire::Opcode::kRcAck &&
                       header.aeth.syndrome == wire::syndrome::kNakStopped));
}

}  // namespace ferry::transport
