#pragma once

#include <vector>

#include "agent/protocol.h"
#include "host/journal/journal.h"
#include "host/peers/messages.h"

namespace google::protobuf {
template <typename Element>
class RepeatedPtrField;
}  // namespace google::protobuf

// The slots of a program's processes, as ferryds tell each other (host/peers/ferry.proto).
namespace ferry::host {

// These throw Failure for an address that is none.
ContextSlots from_message(const v1::ContextSlots& message);
ProcessSlots from_message(const v1::ProcessSlots& message);
std::vector<ProcessSlots> from_messages(
    const google::protobuf::RepeatedPtrField<v1::ProcessSlots>& messages);

void to_message(const ContextSlots& context, v1::ContextSlots* message);
void to_message(const ProcessSlots& place, v1::ProcessSlots* message);

}  // namespace ferry::host
