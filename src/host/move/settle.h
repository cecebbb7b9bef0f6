#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "host/journal/decision.h"
#include "host/peers/messages.h"

// The questions of decision.h, as ferryds put them to each other.
namespace ferry::host {

class KeptPeers;
class Peer;

// Ask the destination of a move. `reason` gets one line for what is not kCommitted.
Answer ask_to_commit(Peer& destination, std::uint64_t move_id, std::string* reason);
Answer ask_to_abort(Peer& destination, std::uint64_t move_id, std::string* reason);

// Why an operator may not abort what the destination `there` has committed. `programs`: their names, quoted.
std::string is_committed_there(const std::string& programs, const std::string& there);

// Asks the source of a move: the ferryd at `ferryd`, of the host whose certificate has the name
// `host`. kUnknown: the source has not decided yet. Throws Failure when it does not answer.
Answer ask_decision(KeptPeers& peers, const std::string& ferryd, const std::string& host,
                    std::uint64_t move_id, std::chrono::milliseconds timeout);

// Throws Failure unless `from`, who asks, is the source of the move (names in certificates).
void need_source(const std::string& source, const std::string& from);

// A ferryd's answers to these questions.
grpc::Status commit_status(Answer answer, const std::string& reason);
grpc::Status abort_status(Answer answer);

// Hears what the destination of a move tells of it after its commit, from the first event on. True:
// the destination has told all, or the program is not there any more. False: `is_needed`, which is
// asked every few seconds, says no.
bool hear(Peer& destination, std::uint64_t move_id,
          const std::function<void(const v1::WatchEvent&)>& handle,
          const std::function<bool()>& is_needed);

}  // namespace ferry::host
