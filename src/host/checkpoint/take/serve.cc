#include "host/checkpoint/take/serve.h"

#include <optional>

#include "base/log.h"
#include "ferry.pb.h"
#include "host/checkpoint/decided.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/step_kinds.h"
#include "host/checkpoint/step_talk.h"
#include "host/checkpoint/take/connection_message.h"
#include "host/peers/steps.h"
#include "host/peers/this_host.h"
#include "store/verdict.h"

namespace ferry::host {
namespace {

// The key, which is in memory once after that.
std::optional<store::ContentKey> key_of(v1::CutStep& look) {
  if (look.content_key().empty()) return std::nullopt;
  const store::ContentKey key(look.content_key());
  store::wipe(look.mutable_content_key());
  return key;
}

// Whoever takes the checkpoint has ended that. The images are stored, and the programs, which end with it, stand still.
void end_if_complete(HostPart& part, const ThisHost& host, LeaderIs leader,
                     const store::Completion& completion, const std::string& id) {
  const std::string what = "checkpoint " + id;
  const auto is_complete =
      decided_in_store(host, what, leader, [&] { return completion.is_complete(); });
  if (!is_complete.value_or(false)) return;
  log::info("{} is complete, as the store says: its programs end", what);
  part.end();
}

}  // namespace

void serve_cut(const BeginCut& begin, const ThisHost& host,
               Served<v1::CutStep, v1::CutReply>& steps) {
  Replies<v1::CutStep, v1::CutReply> replies(steps);
  std::unique_ptr<HostPart> part;               // ends before the replies
  std::optional<Watch<HostPart>> watch;         // ends before the part
  std::optional<store::Completion> completion;  // of one with which the programs end
  std::string id;
  PartMachine machine(kCheckpointCourse);
  for (v1::CutStep step; steps.read(&step);) {
    v1::CutReply reply;
    if (step.kind() == v1::CutStep::LOOK && step.stop() && !part)
      machine = PartMachine(kStopCourse);
    need_turn(machine, course_step(step.kind()));
    switch (step.kind()) {
      case v1::CutStep::LOOK:
        part = begin({step.programs().begin(), step.programs().end()}, step.stop(),
                     [&](const StepBytes& bytes) { replies.tell(bytes); });
        watch.emplace([&steps] { return steps.is_over(); }, *part);
        reply.set_host(host.name);
        reply.set_version(host.version);
        id = step.id();
        if (step.stop()) completion.emplace(need_own_folder(step.directory()), id);
        for (const auto& each :
             part->look(need_own_folder(step.directory()), id, step.first(), key_of(step))) {
          to_message(each, reply.add_connections());
        }
        break;
      case v1::CutStep::CHECK: part->check(); break;
      case v1::CutStep::FREEZE: part->freeze(); break;
      case v1::CutStep::DUMP: part->dump(); break;
      case v1::CutStep::STORE:
        for (const auto& program : part->store()) reply.add_programs(to_text(program));
        break;
      default: reply.set_standstill_ms(part->end()); break;
    }
    machine.taken();
    if (machine.when_lost() != PartMachine::Loss::kGiveUp) watch.reset();
    if (!replies.write(reply)) break;
  }
  if (machine.when_lost() == PartMachine::Loss::kAskStore) {
    end_if_complete(*part, host, steps.is_here() ? LeaderIs::kHere : LeaderIs::kLost, *completion,
                    id);
  }
}

}  // namespace ferry::host
