#include "transport/tail_probe.h"

#include "transport/connection_state.h"

// The probe: the oldest packet that is not acknowledged, once more. The responder takes it for what
// it had lost, or for a duplicate; either way it answers how far it has come. Where that is not far
// enough and the sender's window was full, new packets follow, and a gap before them is reported.
// Where nothing follows the probe's timer runs out again, and everything is sent again from there:
// the peer answered, so that no retry is due.
namespace ferry::transport {

void Connection::State::probe_progress(Time now) {
  TailProbe& probe = req.probe;
  if (probe.timed_end != 0 && req.una >= probe.timed_end) {
    probe.measured(now - probe.timed_at);
    probe.timed_end = 0;
  }
  probe.due = false;
  probe.sent = 0;
  probe.answered = req.una < probe.next;
  probe.at = req.una < probe.asked_end ? deadline(now, probe.delay) : kNever;
}

void Connection::State::probe_timeout(Time now) {
  TailProbe& probe = req.probe;
  if (probe.at > now) return;
  probe.at = kNever;
  if (probe.answered) {
    loss(false);
    go_back();
    return;
  }
  if (probe.sent == TailProbe::kMost) return;
  probe.due = true;
}

bool Connection::State::transmit_probe(Time now) {
  TailProbe& probe = req.probe;
  const std::uint64_t index = req.queue.head();
  Wqe& wqe = req.queue.at(index);
  OutPacket out;
  build_request(packet_at(index, req.una), &out);
  if (!wqe.has_response()) out.header.ack_request = true;
  const EmitResult result = emit(out);
  if (result == EmitResult::kNoRoom) return false;
  probe.due = false;
  if (result != EmitResult::kOk) {
    wqe.local_error = Status::kLocalProtection;
    settle();
    return false;
  }
  ++counters.retransmitted_packets;
  ++probe.sent;
  probe.next = req.next;
  probe.at = deadline(now, 2 * probe.delay);
  return true;
}

}  // namespace ferry::transport
