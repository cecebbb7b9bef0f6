#include "host/checkpoint/restart/serve.h"

#include <optional>

#include "base/log.h"
#include "ferry.pb.h"
#include "host/checkpoint/decided.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/step_kinds.h"
#include "host/checkpoint/step_talk.h"
#include "host/peers/steps.h"
#include "host/peers/this_host.h"
#include "store/content_key.h"
#include "store/verdict.h"

namespace ferry::host {
namespace {

// Whoever restarts the checkpoint has ended that, and the programs are restored.
void go_on_if_decided(HostRestart& part, const ThisHost& host, LeaderIs leader,
                      const store::Verdict& verdict, const std::string& id) {
  const std::string what = "the restart of checkpoint " + id;
  const auto goes_on = decided_in_store(host, what, leader, [&] { return verdict.goes_on(); });
  if (!goes_on.value_or(false)) return;
  log::info("{} goes on, as the store says", what);
  part.go_on();
}

}  // namespace

void serve_restart(const RestartSteps& begin, const ThisHost& host,
                   Served<v1::RestartStep, v1::RestartStepReply>& steps) {
  Replies<v1::RestartStep, v1::RestartStepReply> replies(steps);
  std::unique_ptr<HostRestart> part;        // ends before the replies
  std::optional<Watch<HostRestart>> watch;  // ends before the part
  std::optional<store::Verdict> verdict;
  std::string id;
  PartMachine machine(kRestartCourse);
  for (v1::RestartStep step; steps.read(&step);) {
    v1::RestartStepReply reply;
    reply.set_host(host.name);
    if (step.kind() == v1::RestartStep::LOOK) {
      reply.set_running(begin.look(step));
      if (!replies.write(reply)) break;
      continue;
    }
    need_turn(machine, course_step(step.kind()));
    switch (step.kind()) {
      case v1::RestartStep::CHECK:
        part = begin.begin(step, [&](const StepBytes& bytes) { replies.tell(bytes); });
        store::wipe(step.mutable_content_key());
        id = step.id();
        verdict.emplace(need_own_folder(step.directory()), id, step.attempt());
        watch.emplace([&steps] { return steps.is_over(); }, *part);
        part->check();
        break;
      case v1::RestartStep::RESTORE:
        for (auto& file : part->restore()) reply.add_kept_aside(std::move(file));
        break;
      default: part->go_on(); break;
    }
    machine.taken();
    if (machine.when_lost() != PartMachine::Loss::kGiveUp) watch.reset();
    if (!replies.write(reply)) break;
  }
  if (machine.when_lost() == PartMachine::Loss::kAskStore) {
    go_on_if_decided(*part, host, steps.is_here() ? LeaderIs::kHere : LeaderIs::kLost, *verdict,
                     id);
  }
}

}  // namespace ferry::host
