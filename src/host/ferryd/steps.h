#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include "host/peers/messages.h"

// What another host's ferryd, which takes a checkpoint or restarts one, has this ferryd do step by step (ferry.proto).
namespace ferry::host {

class Daemon;
struct ThisHost;

// Return when the stream has ended; what the steps have begun by then is given up, unless the last one is done. Throw
// Failure.
void serve_cut(Daemon& daemon, const ThisHost& host, const grpc::ServerContext& context,
               grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>& stream);
void serve_restart(Daemon& daemon, const ThisHost& host, const grpc::ServerContext& context,
                   grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>& stream);

}  // namespace ferry::host
