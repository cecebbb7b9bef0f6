#pragma once

#include <cstdint>
#include <string>

#include "migrate/decision.h"
#include "migrate/host.h"
#include "migrate/peer.h"

// How ferryds put the question of decision.h to each other.
namespace ferry::migrate {

// Ask the destination of a move. `reason` gets one line for what is not kCommitted.
Answer ask_to_commit(Peer& destination, std::uint64_t move_id, std::string* reason);
Answer ask_to_abort(Peer& destination, std::uint64_t move_id, std::string* reason);

// The same answers as a ferryd gives them.
grpc::Status commit_status(Answer answer, const std::string& reason);
grpc::Status abort_status(Answer answer);

// Decides a move that a former ferryd of this host has left behind at its source, by its record:
// asks the destination until it answers, or an operator has put an abort on record. kUnknown only
// when this ferryd ends.
Answer settle_source(Host& host, std::uint64_t move_id);

}  // namespace ferry::migrate
