#include "host/move/several/serve.h"

#include <chrono>
#include <future>
#include <mutex>
#include <optional>

#include "base/failure.h"
#include "ferry.grpc.pb.h"
#include "host/move/several/part_message.h"
#include "host/move/source/together.h"
#include "host/peers/steps.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

using Step = v1::MovePartStep;

// The step that each one needs before it.
int before(Step::Kind kind) {
  switch (kind) {
    case Step::LOOK: return -1;
    case Step::PLAN:
    case Step::CHECK:
    case Step::END: return Step::LOOK;
    case Step::PREPARE: return Step::CHECK;
    case Step::COPY: return Step::PREPARE;
    case Step::SUSPEND: return Step::COPY;
    case Step::FINISH: return Step::SUSPEND;
    default: throw Failure("malformed request");
  }
}

v1::MovePartReply carry_out(LocalMovePart& part, const Step& step) {
  v1::MovePartReply reply;
  try {
    switch (step.kind()) {
      case Step::PLAN: *reply.mutable_plan() = part.plan(others_of(step)); break;
      case Step::CHECK: part.check(others_of(step)); break;
      case Step::PREPARE: part.prepare(); break;
      case Step::COPY: part.copy(); break;
      case Step::SUSPEND: part.suspend(); break;
      case Step::FINISH: *reply.mutable_report() = part.finish(); break;
      default: part.end(); break;
    }
  } catch (const NotMoved& failure) {
    reply.set_failure(failure.reason());
    reply.set_is_back(true);
  } catch (const std::exception& failure) {
    reply.set_failure(failure.what());
  }
  return reply;
}

// The stream has ended: so has the leader, or what it leads.
struct LeaderWatch {
  LocalMovePart& part;
  void give_up() const { part.leader_is_gone(); }
};

}  // namespace

void serve_move_part(const BeginMovePart& begin, const ThisHost& host,
                     const grpc::ServerContext& context,
                     grpc::ServerReaderWriter<v1::MovePartReply, v1::MovePartStep>& stream) {
  std::mutex one_at_a_time;
  const auto write = [&](const v1::MovePartReply& reply) {
    std::lock_guard lock(one_at_a_time);
    stream.Write(reply);
  };
  std::unique_ptr<LocalMovePart> part;
  std::optional<LeaderWatch> leader;
  std::optional<Watch<LeaderWatch>> watch;
  std::future<bool> under_way;  // these three end before the part
  bool has_failed = false;      // a step
  StepOrder order;
  for (Step step; stream.Read(&step);) {
    if (step.kind() == Step::GIVE_UP) {
      if (part) part->give_up();
      continue;
    }
    order.need(step.kind(), before(step.kind()));
    if (under_way.valid() && !under_way.get())
      has_failed = true;  // its answer came before this step
    if (has_failed && step.kind() != Step::END) {
      throw Failure("malformed request: a step has failed before");
    }
    if (step.kind() == Step::LOOK) {
      v1::MovePartReply reply;
      reply.set_version(host.version);
      try {
        part = begin(step, [&](const v1::MoveProgress& progress) {
          v1::MovePartReply news;
          *news.mutable_progress() = progress;
          write(news);
        });
        watch.emplace([&context] { return context.IsCancelled(); },
                      leader.emplace(LeaderWatch{*part}));
        to_message(part->look(), &reply);
      } catch (const Failure& failure) {
        reply.set_failure(failure.what());
        has_failed = true;
      }
      write(reply);
      continue;
    }
    if (!part) throw Failure("malformed request: a step is missing");
    under_way = std::async(std::launch::async, [&, step] {
      const auto reply = carry_out(*part, step);
      write(reply);
      return reply.failure().empty();
    });
  }
  if (part) part->leader_is_gone();
  if (under_way.valid()) under_way.wait();
}

}  // namespace ferry::host
