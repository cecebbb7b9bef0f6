#include "host/checkpoint/take/connection_message.h"

#include "base/failure.h"

namespace ferry::host {

void to_message(const Connection::End& end, v1::Connection::End* message) {
  message->set_address(end.address);
  message->set_port(end.port);
}

void to_message(const Connection& connection, v1::Connection* message) {
  message->set_program(connection.program);
  message->set_qpn(connection.qpn);
  to_message(connection.local, message->mutable_local());
  to_message(connection.peer, message->mutable_peer());
  message->set_is_closed(connection.is_closed);
}

Connection::End from_message(const v1::Connection::End& message) {
  return {printable(message.address()), static_cast<std::uint16_t>(message.port())};
}

Connection from_message(const v1::Connection& message) {
  return {printable(message.program()), message.qpn(), from_message(message.local()),
          from_message(message.peer()), message.is_closed()};
}

}  // namespace ferry::host
