#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "ferry.grpc.pb.h"
#include "migrate/credentials.h"
#include "migrate/unique_fd.h"

namespace ferry::migrate {

// The ferryd of another host.
class Peer {
 public:
  // `host`: name or address, with or without port. Its certificate has to be for that name or
  // address, or for `identity` when given; without credentials nothing is checked (--insecure).
  // Throws Failure for an unknown host; does not connect yet.
  Peer(const std::string& host, const Credentials* credentials, const std::string& identity = {});

  // As record() has it.
  static Peer recorded(const std::string& record, const Credentials* credentials);

  const std::string& name() const { return name_; }        // as the user wrote it
  const std::string& address() const { return address_; }  // numeric, without port
  const std::string& target() const { return target_; }    // numeric, with port
  const std::string& identity() const { return identity_; }
  std::string record() const { return identity_ + "@" + target_; }  // for recorded()
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
  std::string why_unavailable() const;
  std::string why_broken_off(UniqueFd socket) const;

  std::string name_, address_, target_, identity_;
  std::uint16_t port_ = 0;
  const Credentials* credentials_;
  std::unique_ptr<v1::Ferryd::Stub> stub_;
};

}  // namespace ferry::migrate
