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
// Nothing for a MAD that is not one of the CM.
std::optional<Destination> destination_of(std::span<const std::byte> mad);

// What is answered to a REQ or a SIDR_REQ whose listener is at `elsewhere`. Nothing for other
// messages.
std::optional<Mad> redirection_of(std::span<const std::byte> mad, const port::Address& elsewhere);

// What an RNIC answers for a process that is not there: REJ, SIDR_REP or DREP. Nothing when silence
// is the answer.
std::optional<Mad> answer_for_nobody(std::span<const std::byte> mad);

}  // namespace ferry::cm
