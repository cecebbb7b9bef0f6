#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include "host/peers/messages.h"

namespace ferry::host {

class Daemon;

// Has programs leave a device as the caller says, and enter it when the caller says so, ends, or is silent for longer
// than the limit. Returns when they are back. Throws Failure.
void serve_detach(Daemon& daemon, uid_t user, grpc::ServerContext& context,
                  grpc::ServerReaderWriter<v1::DetachReply, v1::DetachStep>& stream);

}  // namespace ferry::host
