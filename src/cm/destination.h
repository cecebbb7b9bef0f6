#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "cm/message.h"

namespace ferry::cm {

// Whom a message from the wire is for: the owner of a communication ID, or of a service ID.
struct Destination {
  std::optional<CommId> process;
  ServiceId service = 0;  // when there is no process
};
// Nothing if `mad` is no message of the CM.
std::optional<Destination> destination_of(std::span<const std::byte> mad);

// The answer that sends a REQ (REJ) or a SIDR_REQ (SIDR_REP) on to the CM at `elsewhere`. Nothing
// for other messages.
std::optional<Mad> redirection_of(std::span<const std::byte> mad, const port::Address& elsewhere);

// The answer of an RNIC for a process that is not there: a REQ or a REP gets REJ, a DREQ gets DREP,
// a SIDR_REQ gets SIDR_REP. Nothing for other messages, which get no answer.
std::optional<Mad> answer_for_nobody(std::span<const std::byte> mad);

}  // namespace ferry::cm
