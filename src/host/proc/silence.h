#pragma once

#include <sys/types.h>

// A restored copy of a program may not live when the program itself goes on elsewhere, with the
// same TCP connections.
namespace ferry::host {

// Stops the processes of the tree, and sees to it that their TCP connections will end without a
// word to the peers when the processes are killed.
void silence(pid_t root);

}  // namespace ferry::host
