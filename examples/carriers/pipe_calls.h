#pragma once

#include <string>

namespace carriers {

// pd_init(). Errors end the program, here and below.
void begin_pipe();
// Gives the id of a socket that listens. `ring`: the size of each ring of its connections.
int listen_by_pipe(const std::string& where, int backlog, int ring);
// Tries for `patience` milliseconds while nobody listens there by the pipe; 0: once.
int connect_by_pipe(const std::string& where, int patience, int ring);
// Waits for `patience` milliseconds at most; 0: without limit.
int accept_by_pipe(int listener, int patience);
// Lets go of connections that have come by TCP: one who has patience comes again.
int accept_only_by_pipe(int listener, int patience);

}  // namespace carriers
