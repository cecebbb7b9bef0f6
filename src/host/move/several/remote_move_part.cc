#include "host/move/several/remote_move_part.h"

#include <fmt/core.h>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/move/several/part_message.h"
#include "host/move/source/together.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

v1::MovePartStep step_of(v1::MovePartStep::Kind kind) {
  v1::MovePartStep step;
  step.set_kind(kind);
  return step;
}

v1::MovePartStep step_of(v1::MovePartStep::Kind kind, const Others& others) {
  v1::MovePartStep step = step_of(kind);
  to_message(others, &step);
  return step;
}

}  // namespace

RemoteMovePart::RemoteMovePart(const ThisHost& host, const std::string& name,
                               const PeerRecord& ferryd, const v1::MovePartStep& look,
                               Move::Progress progress)
    : peer_(ferryd.address, host.credentials, ferryd.name),
      version_(host.version),
      look_(std::make_unique<v1::MovePartStep>(look)),
      progress_(std::move(progress)),
      stopping_(host.stopping),
      host_(name),
      steps_(peer_.converse<v1::MovePartStep, v1::MovePartReply>()) {}

RemoteMovePart::~RemoteMovePart() = default;

v1::MovePartReply RemoteMovePart::take(const v1::MovePartStep& step) {
  try {
    steps_->send(step);
    for (;;) {
      auto reply = steps_->receive();
      make_printable(&reply);
      if (reply.has_progress()) {
        progress_(reply.progress());
        continue;
      }
      if (reply.failure().empty()) return reply;
      const std::string reason = fmt::format("{}: {}", host_, reply.failure());
      if (reply.is_back()) throw NotMoved(host_, true, reason);
      throw Failure(reason);
    }
  } catch (const Failure&) {
    is_over_ = true;
    throw;
  }
}

MovePart::Look RemoteMovePart::look() {
  const auto reply = take(*look_);
  if (reply.version() != version_) {
    throw Failure(fmt::format("{} has Ferry {}, and this host {}; install the same on both", host_,
                              reply.version(), version_));
  }
  const Look look = look_of(reply);
  if (look.host != host_ || look.programs.size() != look.move_ids.size()) {
    throw Failure(host_ + " gave a malformed answer");
  }
  return look;
}

v1::GroupPlan RemoteMovePart::plan(const Others& others) {
  return take(step_of(v1::MovePartStep::PLAN, others)).plan();
}

void RemoteMovePart::check(const Others& others) {
  take(step_of(v1::MovePartStep::CHECK, others));
}

void RemoteMovePart::prepare() {
  take(step_of(v1::MovePartStep::PREPARE));
}

void RemoteMovePart::copy() {
  take(step_of(v1::MovePartStep::COPY));
}

void RemoteMovePart::suspend() {
  take(step_of(v1::MovePartStep::SUSPEND));
}

v1::GroupReport RemoteMovePart::finish() {
  return take(step_of(v1::MovePartStep::FINISH)).report();
}

void RemoteMovePart::end() {
  if (!is_over_) take(step_of(v1::MovePartStep::END));
}

void RemoteMovePart::stop_waiting() {
  steps_->cancel();
}

// A host that does not answer holds up no ferryd that is ending: without the stream it gives up by itself.
void RemoteMovePart::give_up() {
  if (stopping_) return steps_->cancel();
  steps_->send(step_of(v1::MovePartStep::GIVE_UP));
}

}  // namespace ferry::host
