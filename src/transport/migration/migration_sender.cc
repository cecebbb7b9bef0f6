#include "transport/migration/migration_sender.h"

#include <new>

namespace ferry::transport {

using wire::MigrationType;

bool MigrationSender::emit(const ControlPacket& packet) {
  OutPacket out;
  out.header = packet.header;
  out.length = static_cast<std::uint32_t>(packet.payload_size);
  if (out.length > 0) {
    out.source = OutPacket::Source::kBytes;
    out.bytes = packet.payload.data();
  }
  return qp_.path.emit(out) != EmitResult::kNoRoom;
}

bool MigrationSender::send(MigrationType type) {
  return emit(packet_with(own_end_.description(), own_end_.message(type), qp_.path.peer));
}

unsigned MigrationSender::transmit() {
  static constexpr struct {
    Due due;
    MigrationType type;
  } kOrder[] = {{kDueResumeAck, MigrationType::kResumeAck},
                {kDueResume, MigrationType::kResume},
                {kDueHelloAck, MigrationType::kHelloAck},
                {kDueHelloDone, MigrationType::kHelloDone},
                {kDueHello, MigrationType::kHello}};
  std::uint8_t& all_due = qp_.migration.due;
  unsigned sent = 0;
  for (const auto& [due, type] : kOrder) {
    if (!(all_due & due)) continue;
    if (!send(type)) return sent;
    all_due &= ~due;
    ++sent;
  }
  if (all_due & kDueStoppedAnswer) {
    if (!emit(*stopped_answer_)) return sent;
    all_due &= ~kDueStoppedAnswer;
    ++sent;
  }
  return sent;
}

// Only the latest answer is kept: a burst of requests needs only one.
void MigrationSender::answer_while_we_are_stopped(const wire::Packet& packet,
                                                  const port::Endpoint& from) {
  if (const auto answer = answer_of(own_end_.description(), packet, from)) {
    if (!stopped_answer_) stopped_answer_.reset(new (std::nothrow) ControlPacket);
    if (!stopped_answer_) return;  // the peer will ask again
    *stopped_answer_ = *answer;
    qp_.migration.due |= kDueStoppedAnswer;
  }
}

}  // namespace ferry::transport
