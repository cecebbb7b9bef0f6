#pragma once

#include <memory>

#include "port/endpoint.h"
#include "transport/migration/own_end.h"
#include "transport/stopped.h"
#include "transport/streams/qp_attributes.h"
#include "wire/header.h"
#include "wire/migration.h"

namespace ferry::transport {

// Sends the migration messages that are due, and the answers of a QP that is Stopped itself.
class MigrationSender {
 public:
  // `stopped_answer` has the packet for kDueStoppedAnswer; few QPs ever have one.
  MigrationSender(QpAttributes& qp, const OwnEnd& own_end,
                  std::unique_ptr<ControlPacket>& stopped_answer)
      : qp_(qp), own_end_(own_end), stopped_answer_(stopped_answer) {}

  // Sends the messages that are due, until the port is full. Returns the number of packets.
  unsigned transmit();
  // False: the port is full.
  bool send(wire::MigrationType type);
  // Keeps our answer to `packet`, which came while we are Stopped, for transmit().
  void answer_while_we_are_stopped(const wire::Packet& packet, const port::Endpoint& from);

 private:
  bool emit(const ControlPacket& packet);

  QpAttributes& qp_;
  const OwnEnd& own_end_;
  std::unique_ptr<ControlPacket>& stopped_answer_;
};

}  // namespace ferry::transport
