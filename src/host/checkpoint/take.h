#pragma once

#include <sys/types.h>

#include <vector>

#include "host/move/source/group/move_group.h"
#include "host/peers/messages.h"

namespace ferry::host {

class Departures;
struct ThisHost;

// Takes a checkpoint of the programs, all at one moment, and puts it into the store. Throws Failure: then all programs
// go on, and the store has what it had.
v1::CheckpointReport take_checkpoint(const ThisHost& host, Departures& departures, uid_t user,
                                     std::vector<MoveGroup::Program> programs,
                                     const v1::CheckpointRequest& request);

}  // namespace ferry::host
