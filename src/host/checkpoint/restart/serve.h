#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>
#include <string>

#include "host/checkpoint/restart/host_restart.h"
#include "host/peers/messages.h"

namespace ferry::host {

struct ThisHost;

// What the steps of a restart need.
struct RestartSteps {
  std::function<std::string(const v1::RestartStep& look)> look;  // what runs; empty: nothing
  std::function<std::unique_ptr<HostRestart>(const v1::RestartStep& check, TellBytes tell)> begin;
};

// Carries out here what another host's ferryd, which restarts a checkpoint, asks for step by step, as serve_cut() does.
// When the stream ends after RESTORE, the programs go on if the store says so.
void serve_restart(const RestartSteps& steps, const ThisHost& host,
                   const grpc::ServerContext& context,
                   grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>& stream);

}  // namespace ferry::host
