#pragma once

#include <string>
#include <vector>

#include "host/checkpoint/find/closure.h"
#include "host/peers/messages.h"

// Questions for programs, and answers, as ferryds tell them each other.
namespace ferry::host {

v1::FindRequest to_message(const Question& question);
// Throws Failure for a malformed request.
Question from_message(const v1::FindRequest& message);

void to_message(const FoundProgram& program, v1::FoundProgram* message);
// What another host answers to the question: its own programs only, and no others than were asked for. Throws Failure
// for another answer.
std::vector<FoundProgram> from_message(const v1::FindReply& message, const Question& question);

}  // namespace ferry::host
