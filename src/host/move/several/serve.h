#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>

#include "host/move/several/local_move_part.h"
#include "host/peers/messages.h"

namespace ferry::host {

struct ThisHost;

// Carries out here what another host's ferryd, which leads a move of programs of several hosts, asks for step by step
// (ferry.proto). `begin`: gives the part of the programs of a step LOOK. Returns when the stream has ended; what has
// begun by then is given up before FINISH, and else goes on to its end. Throws Failure.
using BeginMovePart = std::function<std::unique_ptr<LocalMovePart>(const v1::MovePartStep& look,
                                                                   Move::Progress progress)>;
void serve_move_part(const BeginMovePart& begin, const ThisHost& host,
                     const grpc::ServerContext& context,
                     grpc::ServerReaderWriter<v1::MovePartReply, v1::MovePartStep>& stream);

}  // namespace ferry::host
