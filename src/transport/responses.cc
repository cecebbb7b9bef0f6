#include "transport/connection_state.h"
#include "transport/credits.h"

// The responder's sending half: responses and acknowledgements (IBTA vol. 1 clauses 9.7.5.1.3
// to 9.7.5.1.9, 9.7.7.2). They leave in the order of their PSNs: an acknowledgement that overtook a
// response would mean that the response was lost.
namespace ferry::transport {
namespace {

using wire::Opcode;
namespace syndrome = wire::syndrome;

}  // namespace

wire::Aeth Connection::State::ack_aeth(std::uint32_t msn) {
  if (limits.shared_receive_queue) return {syndrome::kAck | syndrome::kNoCredits, msn};
  // The WQE of a SEND in progress was taken, but its message is not counted in the MSN yet.
  const bool taken = rsp.has_receive && rsp.message == RequestKind::kSend;
  const std::uint8_t code = credit_code(host.receives_posted() + (taken ? 1 : 0));
  rsp.advertised_zero = code == 0;
  return {static_cast<std::uint8_t>(syndrome::kAck | code), msn};
}

EmitResult Connection::State::send_response(Response& response) {
  const bool first = response.sent == 0;
  const bool last = response.sent + 1 == response.psns;
  Opcode opcode = first ? (last ? Opcode::kRcReadResponseOnly : Opcode::kRcReadResponseFirst)
                        : (last ? Opcode::kRcReadResponseLast : Opcode::kRcReadResponseMiddle);
  if (response.kind == RequestKind::kAtomic) opcode = Opcode::kRcAtomicAck;
  OutPacket out;
  address(out.header, opcode, wire::psn_add(response.first_psn, response.sent));
  if (wire::has_aeth(opcode)) out.header.aeth = ack_aeth(response.msn);
  out.header.original = response.original;
  const std::uint64_t offset = std::uint64_t{response.sent} * rtr.mtu;
  out.length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(rtr.mtu, response.length - offset));
  if (out.length > 0) {
    if (!select_srq(response.srqn)) return EmitResult::kRemoteError;
    out.source = OutPacket::Source::kRegion;
    out.address = response.address + offset;
    out.rkey = response.rkey;
  }
  const EmitResult result = emit(out);
  if (result == EmitResult::kOk) ++response.sent;
  return result;
}

EmitResult Connection::State::send_acknowledgement() {
  OutPacket out;
  if (rsp.nak_due) {
    address(out.header, Opcode::kRcAck, rsp.nak_psn);
    out.header.aeth = {rsp.nak_syndrome, rsp.msn};
  } else {
    address(out.header, Opcode::kRcAck, wire::psn_sub(rsp.expected_psn, 1));
    out.header.aeth = ack_aeth(rsp.msn);
  }
  const EmitResult result = emit(out);
  if (result == EmitResult::kOk) {
    rsp.nak_due = false;
    rsp.nak_fatal = false;
    rsp.ack_due = rsp.unanswered = false;
  }
  return result;
}

unsigned Connection::State::transmit_responses(unsigned budget) {
  unsigned sent = 0;
  while (sent < budget && !rsp.responses.empty()) {
    Response& response = rsp.responses.front();
    const EmitResult result = send_response(response);
    if (result == EmitResult::kNoRoom) return sent;
    if (result != EmitResult::kOk) {
      if (response.duplicate) {
        rsp.responses.erase(rsp.responses.begin());
        continue;
      }
      const std::uint32_t psn = wire::psn_add(response.first_psn, response.sent);
      rsp.responses.clear();
      refuse(syndrome::kNakRemoteAccess, psn, Status::kLocalAccess);
      break;
    }
    ++sent;
    if (response.sent == response.psns) rsp.responses.erase(rsp.responses.begin());
  }
  return sent;
}

unsigned Connection::State::transmit_acknowledgement() {
  return acknowledgement_due() && send_acknowledgement() == EmitResult::kOk ? 1 : 0;
}

}  // namespace ferry::transport
