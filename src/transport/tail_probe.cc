#include "transport/tail_probe.h"

#include <algorithm>

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
  probe.quiet = probe.asked_end <= req.una;
  probe.at =
      req.una < std::max(probe.asked_end, probe.quiet_end) ? deadline(now, probe.delay) : kNever;
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
  if (probe.sent >= TailProbe::kMost) return;
  probe.due = true;
}

// The peer was not asked about what is under way. Most likely all of it has arrived, and the program
// knows, and may have done away with the memory it came from: an empty SEND in the place of what is
// acknowledged already is a duplicate, which is acknowledged again with all that has come since, and
// not looked at (clause 9.7.5.1.2, C9-105). What it does not bring has its probe then.
bool Connection::State::transmit_query(Time now) {
  TailProbe& probe = req.probe;
  OutPacket out;
  address(out.header, wire::Opcode::kRcSendOnly,
          static_cast<std::uint32_t>((req.una - 1) & wire::kPsnMask));
  out.header.xrc_srqn = req.queue.at(req.queue.head()).remote_srqn;
  out.header.ack_request = true;
  if (emit(out) == EmitResult::kNoRoom) return false;
  probe.due = false;
  probe.quiet = false;
  probe.next = probe.asked_end = req.next;
  probe.at = now + probe.delay;
  req.ack_at = ack_deadline(now);
  return true;
}

bool Connection::State::transmit_probe(Time now) {
  TailProbe& probe = req.probe;
  if (probe.asked_end <= req.una) return transmit_query(now);
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
  probe.quiet = false;
  probe.asked_end = req.next;
  probe.at = deadline(now, 2 * probe.delay);
  if (req.ack_at == kNever) req.ack_at = ack_deadline(now);
  return true;
}

}  // namespace ferry::transport
