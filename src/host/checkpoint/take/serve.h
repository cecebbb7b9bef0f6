#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/take/host_part.h"
#include "host/peers/messages.h"

namespace ferry::host {

struct ThisHost;

// Carries out here what another host's ferryd, which takes a checkpoint, asks for step by step (ferry.proto). `begin`:
// gives the part of these programs, which tells how far it is. Returns when the stream has ended; what the steps have
// begun by then is given up, unless the last one is done, or the programs end with the checkpoint and the store has it.
// Throws Failure.
using BeginCut = std::function<std::unique_ptr<HostPart>(const std::vector<std::string>& programs,
                                                         bool stop, TellBytes tell)>;
void serve_cut(const BeginCut& begin, const ThisHost& host, const grpc::ServerContext& context,
               grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>& stream);

}  // namespace ferry::host
