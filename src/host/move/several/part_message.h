#pragma once

#include "host/move/several/move_part.h"
#include "host/move/source/move.h"
#include "host/peers/messages.h"

// What is said in a move of programs of several hosts, as messages.
namespace ferry::host {

// What the user of a request wants.
MoveOptions options_of(const v1::MoveRequest& request);

void to_message(const Others& others, v1::MovePartStep* message);
// Throws Failure for a malformed step.
Others others_of(const v1::MovePartStep& message);

void to_message(const MovePart::Look& look, v1::MovePartReply* message);
MovePart::Look look_of(const v1::MovePartReply& message);

// Makes lines of printable characters of all texts in a message, which another host's ferryd has written.
void make_printable(google::protobuf::Message* message);

}  // namespace ferry::host
