#include "transport/connected/uc_requester.h"

#include <algorithm>

namespace ferry::transport {

bool UcRequester::sendable() const {
  const QpAttributes& qp = stream_.qp;
  if (!qp.requesting() || qp.silent() || stream_.all_begun()) return false;
  // In SQD only a message that was begun is finished (clause 10.3.1.4).
  return qp.qp_state != QpState::kSqd || (!stream_.at_fresh_wqe() && stream_.next != stream_.una);
}

void UcRequester::stop(Status status) {
  stream_.qp.qp_state = QpState::kSqe;
  stream_.flush(stream_.queue.head(), status);
}

void UcRequester::settle() {
  if (!stream_.settle()) stop(stream_.queue.at(stream_.queue.head()).local_error);
}

unsigned UcRequester::transmit(unsigned budget) {
  unsigned sent = 0;
  while (sent < budget && sendable()) {
    if (stream_.at_fresh_wqe()) stream_.start_wqe();
    Wqe& wqe = stream_.queue.at(stream_.cursor);
    if (wqe.is_local()) {
      stream_.carry_out(wqe);
      settle();
      ++sent;
      continue;
    }
    const RequestPacket packet = stream_.next_packet();
    OutPacket out;
    stream_.build_request(packet, &out);
    out.header.ack_request = false;
    const EmitResult result = stream_.qp.path.emit(out);
    if (result == EmitResult::kNoRoom) break;
    if (result != EmitResult::kOk) {
      stop(Status::kLocalProtection);
      break;
    }
    ++sent;
    stream_.next += packet.psns;
    stream_.max_sent = std::max(stream_.max_sent, stream_.next);
    if (stream_.next != wqe.end_psn()) continue;
    stream_.una = stream_.next;
    ++stream_.cursor;
    stream_.skip_local();
    stream_.complete_oldest();
    settle();
    stream_.check_drained();
  }
  return sent;
}

}  // namespace ferry::transport
