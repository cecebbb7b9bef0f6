#include "cli/ferryd/local_ferryd.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "agent/protocol.h"
#include "base/failure.h"
#include "host/peers/api.h"

namespace ferry::cli {
namespace {

constexpr int kTicketMs = 5000;
constexpr int kLookMs = 100;  // between looks for a ferryd that starts
constexpr std::chrono::seconds kStartLimit{5};

std::string api_socket() {
  const char* path = std::getenv(host::kApiVariable);
  return path != nullptr && *path != '\0' ? path : host::kApiSocket;
}

Failure no_ferryd() {
  return Failure(
      fmt::format("no ferryd runs on this host ({}); start it: ferryd, as root", api_socket()));
}

}  // namespace

LocalFerryd::LocalFerryd() : who_(agent::connect_to_ferryd()) {
  if (!who_) throw no_ferryd();
  agent::Message answer;
  agent::Ticket ticket;
  if (agent::send_message(who_.get(), agent::MessageType::kWhoAmI, {}) != 0 ||
      agent::receive_message(who_.get(), &answer, kTicketMs) != 0 ||
      answer.type != agent::MessageType::kTicket || !agent::parse(answer.body, &ticket)) {
    throw Failure("the ferryd of this host does not answer; is it of this version?");
  }
  context_.AddMetadata(host::kTicketKey, ticket.text);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kLookMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kLookMs);
  const auto channel = grpc::CreateCustomChannel("unix:" + api_socket(),
                                                 grpc::InsecureChannelCredentials(), arguments);
  // ferryd has given the ticket, and it serves commands before it gives tickets: only the connection may take a moment.
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + kStartLimit)) {
    throw no_ferryd();
  }
  stub_ = v1::Local::NewStub(channel);
}

void throw_unless_ok(const grpc::Status& status) {
  if (status.ok()) return;
  if (status.error_code() == grpc::UNAVAILABLE) throw no_ferryd();
  if (status.error_code() == grpc::UNIMPLEMENTED) {
    throw Failure("the ferryd of this host is of another version; start that of this version");
  }
  throw Failure(one_line(status.error_message()));
}

}  // namespace ferry::cli
