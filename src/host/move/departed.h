#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "host/move/host.h"

// What stays at the source when a program has left.
namespace ferry::host {

// The network of a container that has left: released when nobody holds it any more.
std::shared_ptr<void> hold_network(Host& host, const std::string& instance);

// Origins::keep() with what the journal has to know of it: the RNIC has moved on, its slot is free.
void keep_origin(Host& host, std::uint64_t move_id, StandInId stand_in, const Place& place,
                 std::shared_ptr<void> network);

}  // namespace ferry::host
