#pragma once

#include <sys/types.h>

// A restored copy of a program that is not to live: the program itself goes on elsewhere, with the
// same TCP connections.
namespace ferry::host {

// Stops the processes of the tree, so that what ends them next ends their TCP connections without a
// word to the peers.
void silence(pid_t root);

}  // namespace ferry::host
