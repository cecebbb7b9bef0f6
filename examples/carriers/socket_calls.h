#pragma once

#include <string>

namespace carriers {

// Listens by TCP, or by a Unix socket where `where` is a path. Gives the descriptor; errors end the program.
int listen_by_socket(const std::string& where, int backlog);
// Tries for `patience` milliseconds while nobody listens there; 0: once.
int connect_by_socket(const std::string& where, int patience);
// Waits for `patience` milliseconds at most; 0: without limit.
int accept_by_socket(int listener, int patience);
// Whether small messages leave at once. It is nothing to Unix sockets.
void set_no_delay(int socket, bool on);

}  // namespace carriers
