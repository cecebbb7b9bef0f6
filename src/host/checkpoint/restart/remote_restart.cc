#include "host/checkpoint/restart/remote_restart.h"

#include "base/failure.h"
#include "ferry.pb.h"
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

RemoteRestart::RemoteRestart(const ThisHost& host, const std::string& to,
                             const std::string& identity)
    : peer_(to, host.credentials, identity),
      steps_(peer_.converse<v1::RestartStep, v1::RestartStepReply>()),
      first_(std::make_unique<v1::RestartStep>()) {
  host_ = printable(steps_->ask(restart_step(v1::RestartStep::LOOK)).host());
}

std::string RemoteRestart::what_runs(const std::vector<std::string>& facts, bool force) {
  auto step = restart_step(v1::RestartStep::LOOK);
  step.set_force(force);
  for (const auto& each : facts) step.add_facts(each);
  return printable(steps_->ask(step).running());
}

void RemoteRestart::check() {
  steps_->ask(*first_);
  store::wipe(first_->mutable_content_key());
}

std::vector<std::string> RemoteRestart::restore() {
  const auto reply = steps_->ask(restart_step(v1::RestartStep::RESTORE));
  std::vector<std::string> files;
  for (const auto& file : reply.kept_aside()) files.push_back(printable(file));
  return files;
}

void RemoteRestart::go_on() {
  steps_->ask(restart_step(v1::RestartStep::GO_ON));
}

}  // namespace ferry::host
