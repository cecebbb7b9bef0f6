#include "host/checkpoint/restart/serve.h"

#include <optional>

#include "base/log.h"
#include "ferry.grpc.pb.h"
#include "host/checkpoint/decided.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/step_talk.h"
#include "host/peers/steps.h"
#include "host/peers/this_host.h"
#include "store/content_key.h"
#include "store/verdict.h"

namespace ferry::host {
namespace {

// Whoever restarts the checkpoint is lost, and the programs are restored.
void go_on_if_decided(HostRestart& part, const store::Verdict& verdict, const ThisHost& host,
                      const std::string& id) {
  const std::string what = "the restart of checkpoint " + id;
  if (!decided_in_store(host, what, [&] { return verdict.goes_on(); }).value_or(false)) return;
  log::info("{} goes on, although the host that has begun it is lost: the store says so", what);
  part.go_on();
}

}  // namespace

void serve_restart(const RestartSteps& steps, const ThisHost& host,
                   const grpc::ServerContext& context,
                   grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>& stream) {
  Replies<v1::RestartStepReply, grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>>
      replies(stream);
  std::unique_ptr<HostRestart> part;        // ends before the replies
  std::optional<Watch<HostRestart>> watch;  // ends before the part
  std::optional<store::Verdict> verdict;
  std::string id;
  bool is_restored = false;
  StepOrder order;
  for (v1::RestartStep step; stream.Read(&step);) {
    v1::RestartStepReply reply;
    reply.set_host(host.name);
    switch (step.kind()) {
      case v1::RestartStep::LOOK: reply.set_running(steps.look(step)); break;
      case v1::RestartStep::CHECK:
        order.need(step.kind(), -1);
        part = steps.begin(step, [&](const StepBytes& bytes) { replies.tell(bytes); });
        store::wipe(step.mutable_content_key());
        id = step.id();
        verdict.emplace(need_own_folder(step.directory()), id, step.attempt());
        watch.emplace(context, *part);
        part->check();
        break;
      case v1::RestartStep::RESTORE:
        order.need(step.kind(), v1::RestartStep::CHECK);
        for (auto& file : part->restore()) reply.add_kept_aside(std::move(file));
        watch.reset();
        is_restored = true;
        break;
      case v1::RestartStep::GO_ON:
        order.need(step.kind(), v1::RestartStep::RESTORE);
        is_restored = false;
        part->go_on();
        break;
      default: throw Failure("malformed request");
    }
    if (!replies.write(reply)) break;
  }
  if (is_restored) go_on_if_decided(*part, *verdict, host, id);
}

}  // namespace ferry::host
