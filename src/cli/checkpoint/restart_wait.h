#pragma once

#include <string>

#include "host/peers/messages.h"

namespace ferry::cli {

// restart(), and waits until all of the programs have ended. SIGTERM and SIGINT to this process end them, and so does
// its own end. Gives the exit status of the first one that has ended with another than 0. Throws Failure.
int restart_and_wait(v1::RestartRequest request, const std::string& key);

}  // namespace ferry::cli
