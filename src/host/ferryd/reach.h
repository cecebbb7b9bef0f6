#pragma once

#include <string>

#include "host/peers/messages.h"

namespace ferry::host {

class Credentials;

// How far the ferryd of another host is from being the other end of a move: asks it over the
// connection that a move would use, and tries the port for images. `host`: as Peer takes it;
// `identity`: as there. Never throws: what fails is in the answer.
v1::Reached reach(const std::string& host, const std::string& identity,
                  const Credentials* credentials);

}  // namespace ferry::host
