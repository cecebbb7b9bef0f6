#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "ferry.grpc.pb.h"

namespace ferry::migrate {

// The ferryd of another host.
class Peer {
 public:
  // `host`: name or address, with or without port. Throws Failure for an unknown one; does not
  // connect yet.
  explicit Peer(const std::string& host);

  const std::string& name() const { return name_; }        // as the user wrote it
  const std::string& address() const { return address_; }  // numeric, without port
  const std::string& target() const { return target_; }    // numeric, with port
  v1::Ferryd::Stub& stub() { return *stub_; }

  // Calls a method. Throws Failure with the peer's one line, or that there is no ferryd.
  template <typename Request, typename Reply>
  void call(grpc::Status (v1::Ferryd::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request, Reply* reply, std::chrono::milliseconds timeout) {
    throw_unless_ok(try_call(method, request, reply, timeout));
  }
  template <typename Request, typename Reply>
  grpc::Status try_call(grpc::Status (v1::Ferryd::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Reply*),
                        const Request& request, Reply* reply, std::chrono::milliseconds timeout) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    return ((*stub_).*method)(&context, request, reply);
  }
  void throw_unless_ok(const grpc::Status& status) const;

 private:
  std::string name_, address_, target_;
  std::unique_ptr<v1::Ferryd::Stub> stub_;
};

}  // namespace ferry::migrate
