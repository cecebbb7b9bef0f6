#include "host/checkpoint/restart/serve.h"

#include <optional>

#include "ferry.grpc.pb.h"
#include "host/peers/steps.h"
#include "host/peers/this_host.h"
#include "store/content_key.h"

namespace ferry::host {

void serve_restart(const RestartSteps& steps, const ThisHost& host,
                   const grpc::ServerContext& context,
                   grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>& stream) {
  std::unique_ptr<LocalRestart> part;
  std::optional<Watch<LocalRestart>> watch;  // ends before the part
  StepOrder order;
  for (v1::RestartStep step; stream.Read(&step);) {
    v1::RestartStepReply reply;
    reply.set_host(host.name);
    switch (step.kind()) {
      case v1::RestartStep::LOOK: reply.set_running(steps.look(step)); break;
      case v1::RestartStep::CHECK:
        order.need(step.kind(), -1);
        part = steps.begin(step);
        store::wipe(step.mutable_content_key());
        watch.emplace(context, *part);
        part->check();
        break;
      case v1::RestartStep::RESTORE:
        order.need(step.kind(), v1::RestartStep::CHECK);
        for (auto& file : part->restore()) reply.add_kept_aside(std::move(file));
        break;
      case v1::RestartStep::GO_ON:
        order.need(step.kind(), v1::RestartStep::RESTORE);
        part->go_on();
        break;
      default: throw Failure("malformed request");
    }
    if (!stream.Write(reply)) return;
  }
}

}  // namespace ferry::host
