#pragma once

#include <sys/types.h>

#include <string>

#include "host/peers/messages.h"

// Has the ferryd of this host take checkpoints, and restart programs.
namespace ferry::cli {

// The directories of the requests may be relative ones. `json`: prints the report as JSON. Give the exit status; throw
// Failure.
int checkpoint(v1::CheckpointRequest request, bool json);
int restart(v1::RestartRequest request, bool json);

// The user of this name, or with this number. Throws Failure.
uid_t user_number(const std::string& user);

}  // namespace ferry::cli
