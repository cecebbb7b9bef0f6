#pragma once

#include <string>

#include "host/peers/messages.h"

namespace ferry::host {

class Credentials;

// Finds out whether the ferryd of another host can be the other end of a move: asks it over the connection that a move
// would use, and tries the port for images. `host`, `identity`: as Peer takes them. Never throws: what fails is in the
// answer.
v1::Reached reach(const std::string& host, const std::string& identity,
                  const Credentials* credentials);

}  // namespace ferry::host
