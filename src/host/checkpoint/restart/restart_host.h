#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/restart/serve.h"
#include "host/peers/conversation.h"
#include "host/peers/messages.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"

namespace ferry::host {

struct ThisHost;

// A host where programs of a checkpoint go on, or may run yet, for the ferryd that restarts it.
struct RestartHost {
  PeerRecord record;
  std::vector<std::uint32_t> programs;  // of the checkpoint, those that go on there
  std::unique_ptr<Peer> peer;           // its ferryd; none: this one
  std::unique_ptr<Conversation<v1::RestartStep, v1::RestartStepReply>> steps;
};

RestartHost restart_host_here(const ThisHost& host, std::vector<std::uint32_t> programs,
                              BeginRestart begin);
// `to`, `identity`: as Peer has them. Throws Failure when it is not there.
RestartHost restart_host_there(const ThisHost& host, const std::string& to,
                               std::vector<std::uint32_t> programs,
                               const std::string& identity = {});
// Which of these programs runs there, in the words of what_runs() (local_restart.h); empty: none. `facts`: as in the
// manifest.
std::string what_runs_there(RestartHost& host, const std::vector<std::string>& facts, bool force);

}  // namespace ferry::host
