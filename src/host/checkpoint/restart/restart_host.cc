#include "host/checkpoint/restart/restart_host.h"

#include <utility>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/peers/conversation_here.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

v1::RestartStep look_step() {
  v1::RestartStep step;
  step.set_kind(v1::RestartStep::LOOK);
  return step;
}

}  // namespace

RestartHost restart_host_here(const ThisHost& host, std::vector<std::uint32_t> programs,
                              BeginRestart begin) {
  const auto serve = [&host, begin = std::move(begin)](auto& steps) {
    serve_restart({[](const auto&) { return std::string(); }, begin}, host, steps);
  };
  return {{host.address, host.name},
          std::move(programs),
          nullptr,
          std::make_unique<ConversationHere<v1::RestartStep, v1::RestartStepReply>>(serve)};
}

RestartHost restart_host_there(const ThisHost& host, const std::string& to,
                               std::vector<std::uint32_t> programs, const std::string& identity) {
  auto peer = std::make_unique<Peer>(to, host.credentials, identity);
  auto steps = peer->converse<v1::RestartStep, v1::RestartStepReply>();
  const std::string name = printable(steps->ask(look_step()).host());
  return {{peer->target(), name}, std::move(programs), std::move(peer), std::move(steps)};
}

std::string what_runs_there(RestartHost& host, const std::vector<std::string>& facts, bool force) {
  auto step = look_step();
  step.set_force(force);
  for (const auto& each : facts) step.add_facts(each);
  return printable(host.steps->ask(step).running());
}

}  // namespace ferry::host
