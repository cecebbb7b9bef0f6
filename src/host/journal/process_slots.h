#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/protocol.h"
#include "rnic/slot.h"

// What the parcels of contexts hold, for ferryd, which binds sockets and chooses devices.
namespace ferry::host {

struct ContextSlots {
  std::string netdev;
  std::vector<rnic::Slot> slots = {};
  std::string device_behind =
      {};  // of a context of shadows, which has no slots; empty: one of our RNICs
  std::vector<device::Letter::End> names = {};  // as in agent::ParkedContext
};

// Where the sockets of a process are, or are to be; it has no descriptors.
struct ProcessSlots {
  pid_t inner_pid = 0;
  std::vector<ContextSlots> contexts;
};

// What a process gets to go on with (agent::Resume).
struct ResumeSlots {
  bool rollback = false;
  std::vector<ContextSlots> contexts;
};

// The descriptors go along. If a parcel is malformed, closes those of all, and throws Failure.
std::vector<ContextSlots> to_slots(std::vector<agent::ParkedContext> contexts);
// Of the slots of a context, all have a descriptor, or none has; they stay their owner's.
std::vector<agent::ParkedContext> to_parked(const std::vector<ContextSlots>& contexts);

}  // namespace ferry::host
