#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/movable.h"
#include "port/endpoint.h"

namespace ferry::rnic {

// One socket of our RNIC that passes to the stand-in, or comes back from it, with the QPs that it
// serves.
struct Slot {
  int descriptor = -1;  // owned by whoever holds the struct
  port::Endpoint local;
  std::uint32_t slot = 0;
  // The RNIC's name for life: the virtual GID of this family, and the UDP port of the slot where
  // the RNIC was opened; port 0: it has no GID of this family. `epoch` counts its stops and
  // rollbacks.
  port::Endpoint origin;
  std::uint32_t epoch = 0;
  bool has_origin() const { return origin.udp_port != 0; }
  std::vector<std::vector<std::byte>>
      entries;  // stand-in entries (transport/migration/stand_in.h); empty on the way back
};

// Slots as the parcel of an RNIC of ours, and back. The descriptors keep their owner. Either all
// slots have a descriptor, or none has.
device::Parcel to_parcel(const std::vector<Slot>& slots);
// False: the parcel is not ours, is malformed, or has descriptors but not one for each slot.
bool to_slots(const device::Parcel& parcel, std::vector<Slot>* out);

}  // namespace ferry::rnic
