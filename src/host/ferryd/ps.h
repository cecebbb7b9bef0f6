#pragma once

#include "agent/protocol.h"
#include "host/peers/messages.h"

namespace ferry::host {

// The devices of a process as `ferry ps` shows them.
void to_message(const agent::StatusReply& status, v1::Program* program);

}  // namespace ferry::host
