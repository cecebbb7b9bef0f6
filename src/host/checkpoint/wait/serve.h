#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <functional>
#include <memory>

#include "host/checkpoint/wait/wait.h"
#include "host/peers/messages.h"

namespace ferry::host {

// What serve_wait() needs. They throw Failure.
struct WaitSteps {
  // `is_awaited`: as Attempt has it.
  std::function<v1::RestartedPrograms(const v1::RestartRequest& request,
                                      std::function<bool()> is_awaited)>
      restart;
  std::function<std::unique_ptr<Wait>(const v1::RestartedPrograms& programs)> begin;
  const std::atomic<bool>& stopping;  // this ferryd ends
};

// Restarts programs, and tells the caller when they have ended. They are ended when the caller says so, or ends; not
// when this ferryd ends. What fails is told to the caller, too, who ends the call. Throws Failure: nothing has begun.
void serve_wait(const WaitSteps& steps, grpc::ServerContext& context,
                grpc::ServerReaderWriter<v1::WaitEvent, v1::WaitStep>& stream);

}  // namespace ferry::host
