#pragma once

#include "agent/protocol.h"
#include "host/journal/journal.h"
#include "host/peers/messages.h"

// The slots of a program's processes, as ferryds tell each other (host/peers/ferry.proto).
namespace ferry::host {

// These throw Failure for an address that is none.
agent::ContextSlots from_message(const v1::ContextSlots& message);
ProcessSlots from_message(const v1::ProcessSlots& message);

void to_message(const agent::ContextSlots& context, v1::ContextSlots* message);
void to_message(const ProcessSlots& place, v1::ProcessSlots* message);

}  // namespace ferry::host
