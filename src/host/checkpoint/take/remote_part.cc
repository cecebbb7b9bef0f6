#include "host/checkpoint/take/remote_part.h"

#include <fmt/core.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/failure.h"
#include "base/json_text.h"
#include "ferry.pb.h"
#include "host/checkpoint/step_talk.h"
#include "host/checkpoint/take/connection_message.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

v1::CutStep step_of(v1::CutStep::Kind kind) {
  v1::CutStep step;
  step.set_kind(kind);
  return step;
}

}  // namespace

RemotePart::RemotePart(const ThisHost& host, const std::string& to,
                       std::vector<std::string> programs, bool stop, TellBytes tell,
                       const std::string& identity)
    : peer_(to, host.credentials, identity),
      version_(host.version),
      programs_(std::move(programs)),
      stop_(stop),
      tell_(std::move(tell)),
      host_(peer_.name()),
      steps_(peer_.converse<v1::CutStep, v1::CutReply>()) {}

v1::CutReply RemotePart::take(const v1::CutStep& step) {
  return ask(*steps_, step, tell_);
}

std::vector<Connection> RemotePart::look(const std::string& directory, const std::string& id,
                                         std::uint32_t first,
                                         const std::optional<store::ContentKey>& key) {
  v1::CutStep step = step_of(v1::CutStep::LOOK);
  step.set_directory(directory);
  step.set_id(id);
  step.set_first(first);
  for (const auto& program : programs_) step.add_programs(program);
  step.set_stop(stop_);
  if (key) step.set_content_key(std::string(key->bytes()));
  const auto reply = take(step);
  store::wipe(step.mutable_content_key());
  if (reply.version() != version_) {
    throw Failure(fmt::format("{} has Ferry {}, and this host {}; install the same on both",
                              peer_.name(), printable(reply.version()), version_));
  }
  host_ = printable(reply.host());
  std::vector<Connection> connections;
  for (const auto& one : reply.connections()) connections.push_back(from_message(one));
  return connections;
}

void RemotePart::check() {
  take(step_of(v1::CutStep::CHECK));
}

void RemotePart::freeze() {
  take(step_of(v1::CutStep::FREEZE));
}

void RemotePart::dump() {
  take(step_of(v1::CutStep::DUMP));
}

double RemotePart::end() {
  return take(step_of(v1::CutStep::END)).standstill_ms();
}

std::vector<store::Program> RemotePart::store() {
  const auto reply = take(step_of(v1::CutStep::STORE));
  std::vector<store::Program> programs;
  try {
    for (const auto& text : reply.programs()) {
      programs.push_back(store::parse_program(json_of(text)));
      if (programs.back().host != host_) throw Failure("a program of another host");
    }
  } catch (const std::exception& failure) {
    throw Failure(
        fmt::format("{} gave a malformed answer: {}", peer_.name(), one_line(failure.what())));
  }
  if (programs.size() != programs_.size()) {
    throw Failure(peer_.name() + " gave a malformed answer: images of other programs");
  }
  return programs;
}

}  // namespace ferry::host
