#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include "ferry.pb.h"
#include "host/checkpoint/teller.h"

namespace ferry::host {

// Writes how far a checkpoint or a restart is, and then its report: that is what `run` gives, which gets what Attempt's
// constructor gets.
template <typename Event, typename Run>
void tell_all(const grpc::ServerContext& context, grpc::ServerWriter<Event>& writer, Run run) {
  Event last;
  {
    Teller teller([&](const v1::CheckpointProgress& progress) {
      Event event;
      *event.mutable_progress() = progress;
      writer.Write(event);
    });
    *last.mutable_report() =
        run([&](const v1::CheckpointProgress& progress) { teller.tell(progress); },
            [&] { return !context.IsCancelled(); });
  }
  writer.Write(last);
}

}  // namespace ferry::host
