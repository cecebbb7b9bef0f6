#include "transport/connection_state.h"

// The requester of UC (IBTA vol. 1 clause 9.8.1): a request is complete when it has been sent.
// Nothing is acknowledged, so there are no windows and no timers. `una` is where the message begins
// that is being sent: one that a stop of either side interrupts is sent again from there.
namespace ferry::transport {

bool Connection::State::uc_sendable() const {
  if (!requesting() || silent() || all_begun()) return false;
  // Drained means: no message is begun any more (clause 10.3.1.4).
  return qp_state != QpState::kSqd || (req.cursor != req.queue.assigned() && req.next != req.una);
}

void Connection::State::stop_sends(Status status) {
  qp_state = QpState::kSqe;
  SendQueue& queue = req.queue;
  for (bool first = true; !queue.empty(); first = false) {
    const Wqe& wqe = queue.at(queue.head());
    const SendCompletion completion{
        .wr_id = wqe.wr_id, .status = first ? status : Status::kFlush, .operation = wqe.operation};
    queue.pop();
    host.complete_send(completion);
  }
  req.una = req.next = req.max_sent;
  req.cursor = queue.head();
}

unsigned Connection::State::transmit_uc(unsigned budget) {
  unsigned sent = 0;
  while (sent < budget && uc_sendable()) {
    if (req.cursor == req.queue.assigned()) start_wqe();
    Wqe& wqe = req.queue.at(req.cursor);
    if (wqe.is_local()) {
      carry_out(wqe);
      ++sent;
      continue;
    }
    const RequestPacket packet = next_packet();
    OutPacket out;
    build_request(packet, &out);
    out.header.ack_request = false;
    const EmitResult result = emit(out);
    if (result == EmitResult::kNoRoom) break;
    if (result != EmitResult::kOk) {
      stop_sends(Status::kLocalProtection);
      break;
    }
    ++sent;
    req.next += packet.psns;
    req.max_sent = std::max(req.max_sent, req.next);
    if (req.next != wqe.end_psn()) continue;
    req.una = req.next;
    ++req.cursor;
    skip_local();
    complete_head();
    check_drained();
  }
  return sent;
}

}  // namespace ferry::transport
