#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/take/serve.h"
#include "host/peers/conversation.h"
#include "host/peers/messages.h"
#include "host/peers/peer.h"

namespace ferry::host {

struct ThisHost;

// A host with programs of a checkpoint, for the ferryd that takes it.
struct CutHost {
  std::string name;                   // as the user calls it, until it has said its own
  std::vector<std::string> programs;  // their names there
  std::unique_ptr<Peer> peer;         // its ferryd; none: this one
  std::unique_ptr<Conversation<v1::CutStep, v1::CutReply>> steps;
};

// `begin`: as serve_cut() has it.
CutHost cut_host_here(const ThisHost& host, std::vector<std::string> programs, BeginCut begin);
// `to`, `identity`: as Peer has them. Throws Failure.
CutHost cut_host_there(const ThisHost& host, const std::string& to,
                       std::vector<std::string> programs, const std::string& identity = {});

}  // namespace ferry::host
