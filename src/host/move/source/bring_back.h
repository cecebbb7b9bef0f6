#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "host/journal/decision.h"

// How a program goes on here when its move was given up.
namespace ferry::host {

class Peer;
class StoppedTree;
class Unit;

// Tells the destination that the program does not come. It gives that up by itself, too: nothing is
// promised. But where a runtime has made the program's network there, that should be gone before the
// program is restored here: then this waits a while for a destination that is busy.
void tell_of_abort(Peer& destination, std::uint64_t move_id, const Unit& unit);

// Has the runtime of a program that is checkpointed (Unit::is_checkpointed()) restore it, unless it
// goes on anyway. A runtime that hangs is killed after `limit`, and gets a second chance: the
// checkpoint is still there. Gives an empty string, or why the program does not go on.
std::string bring_back(const Unit& unit, StoppedTree& tree, std::chrono::milliseconds limit,
                       const std::atomic<bool>& stopping);

// Throws Failure unless the move is given up (`answer`), so that a CRIU of the runtime's may restore
// the program here.
void need_restorable_here(Answer answer, const std::string& program, const std::string& to);

}  // namespace ferry::host
