#include "host/checkpoint/restart/remote_restart.h"

#include <utility>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/checkpoint/step_talk.h"
#include "host/peers/this_host.h"
#include "store/content_key.h"

namespace ferry::host {
namespace {

v1::RestartStep restart_step(v1::RestartStep::Kind kind) {
  v1::RestartStep step;
  step.set_kind(kind);
  return step;
}

}  // namespace

RemoteRestart::RemoteRestart(const ThisHost& host, const std::string& to, TellBytes tell,
                             const std::string& identity)
    : peer_(to, host.credentials, identity),
      steps_(peer_.converse<v1::RestartStep, v1::RestartStepReply>()),
      tell_(std::move(tell)),
      first_(std::make_unique<v1::RestartStep>()) {
  host_ = printable(take(restart_step(v1::RestartStep::LOOK)).host());
}

v1::RestartStepReply RemoteRestart::take(const v1::RestartStep& step) {
  return ask(*steps_, step, tell_);
}

std::string RemoteRestart::what_runs(const std::vector<std::string>& facts, bool force) {
  auto step = restart_step(v1::RestartStep::LOOK);
  step.set_force(force);
  for (const auto& each : facts) step.add_facts(each);
  return printable(take(step).running());
}

void RemoteRestart::check() {
  take(*first_);
  store::wipe(first_->mutable_content_key());
}

std::vector<std::string> RemoteRestart::restore() {
  const auto reply = take(restart_step(v1::RestartStep::RESTORE));
  std::vector<std::string> files;
  for (const auto& file : reply.kept_aside()) files.push_back(printable(file));
  return files;
}

void RemoteRestart::go_on() {
  take(restart_step(v1::RestartStep::GO_ON));
}

}  // namespace ferry::host
