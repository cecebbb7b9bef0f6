#include "host/checkpoint/take/cut_host.h"

#include <utility>

#include "ferry.pb.h"
#include "host/peers/conversation_here.h"
#include "host/peers/this_host.h"

namespace ferry::host {

CutHost cut_host_here(const ThisHost& host, std::vector<std::string> programs, BeginCut begin) {
  const auto serve = [&host, begin = std::move(begin)](auto& steps) {
    serve_cut(begin, host, steps);
  };
  return {host.name, std::move(programs), nullptr,
          std::make_unique<ConversationHere<v1::CutStep, v1::CutReply>>(serve)};
}

CutHost cut_host_there(const ThisHost& host, const std::string& to,
                       std::vector<std::string> programs, const std::string& identity) {
  auto peer = std::make_unique<Peer>(to, host.credentials, identity);
  auto steps = peer->converse<v1::CutStep, v1::CutReply>();
  return {peer->name(), std::move(programs), std::move(peer), std::move(steps)};
}

}  // namespace ferry::host
