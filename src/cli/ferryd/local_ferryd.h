#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <memory>

#include "base/unique_fd.h"
#include "ferry.grpc.pb.h"

namespace ferry::cli {

// A channel to the ferryd of this host, and the connection by which that ferryd knows the user who calls. Serves one
// call.
class LocalFerryd {
 public:
  // Throws Failure when there is no ferryd, or it does not answer.
  LocalFerryd();

  v1::Local::Stub* operator->() const { return stub_.get(); }
  grpc::ClientContext* context() { return &context_; }

 private:
  UniqueFd who_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::Local::Stub> stub_;
};

// Throws Failure, with ferryd's one line.
void throw_unless_ok(const grpc::Status& status);

}  // namespace ferry::cli
