#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <string>

#include "host/journal/decision.h"
#include "host/peers/messages.h"

// How ferryds put the question of decision.h to each other.
namespace ferry::host {

class Peer;

// Ask the destination of a move. `reason` gets one line for what is not kCommitted.
Answer ask_to_commit(Peer& destination, std::uint64_t move_id, std::string* reason);
Answer ask_to_abort(Peer& destination, std::uint64_t move_id, std::string* reason);

// The same answers as a ferryd gives them.
grpc::Status commit_status(Answer answer, const std::string& reason);
grpc::Status abort_status(Answer answer);

// What the destination of a move tells of it after its commit, from the first on: until it has told
// all, or the program is not there any more (true), or until `is_needed`, which is asked every few
// seconds, says no (false).
bool hear(Peer& destination, std::uint64_t move_id,
          const std::function<void(const v1::WatchEvent&)>& handle,
          const std::function<bool()>& is_needed);

}  // namespace ferry::host
