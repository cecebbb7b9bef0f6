#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "host/peers/conversation.h"
#include "host/peers/messages.h"

namespace ferry::host {

class Credentials;

inline constexpr std::uint16_t kFerrydPort = 4780;  // TCP

// The ferryd of another host.
class Peer {
 public:
  // `host`: name or address, with or without port. Its certificate has to be for that name or
  // address, or for `identity` when given; without credentials nothing is checked (--insecure).
  // Throws Failure for an unknown host; does not connect yet.
  Peer(const std::string& host, const Credentials* credentials, const std::string& identity = {});
  ~Peer();

  // The peer that record() has named.
  static Peer recorded(const std::string& record, const Credentials* credentials);

  const std::string& name() const { return name_; }        // as the user wrote it
  const std::string& address() const { return address_; }  // numeric, without port
  std::uint16_t port() const { return port_; }
  const std::string& target() const { return target_; }  // numeric, with port
  const std::string& identity() const { return identity_; }
  std::string record() const { return identity_ + "@" + target_; }  // for recorded()

  // Calls the method that takes such a request (ferry.proto). Throws Failure with the peer's one
  // line, or that there is no ferryd.
  template <typename Request, typename Reply>
  void call(const Request& request, Reply* reply, std::chrono::milliseconds timeout) {
    const auto status = try_call(request, reply, timeout);
    if (!status.ok()) throw failure_of(status);
  }
  // Defined in peer.cc, for each method.
  template <typename Request, typename Reply>
  grpc::Status try_call(const Request& request, Reply* reply, std::chrono::milliseconds timeout);
  // Begins the method that takes such steps. Lasts no longer than this object. Defined in peer.cc, for each method.
  template <typename Step, typename Reply>
  std::unique_ptr<Conversation<Step, Reply>> converse();
  // Gives `handle` each event of a move, until the peer has told all or `timeout` is over.
  grpc::Status watch(std::uint64_t move_id,
                     const std::function<void(const v1::WatchEvent&)>& handle,
                     std::chrono::milliseconds timeout);

 private:
  struct Calls;
  template <typename Step, typename Reply>
  class Talk;

  // What the user is told of a call that has failed.
  Failure failure_of(const grpc::Status& status) const;
  std::string why_unavailable() const;
  std::string why_broken_off(UniqueFd socket) const;

  std::string name_, address_, target_, identity_;
  std::uint16_t port_ = 0;
  const Credentials* credentials_;
  std::unique_ptr<Calls> calls_;
};

}  // namespace ferry::host
