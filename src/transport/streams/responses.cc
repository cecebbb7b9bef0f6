#include "transport/streams/responses.h"

#include <algorithm>
#include <utility>

#include "transport/streams/credits.h"
#include "wire/psn.h"

namespace ferry::transport {
namespace {

namespace syndrome = wire::syndrome;

// What most requesters use of the responder resources that they ask for; memory for more is taken
// when a requester uses more.
constexpr std::size_t kReserved = 16;

wire::Opcode opcode_of(const Response& response) {
  using wire::Opcode;
  if (response.kind == RequestKind::kAtomic) return Opcode::kRcAtomicAck;
  const bool last = response.sent + 1 == response.psns;
  if (response.sent == 0) {
    return last ? Opcode::kRcReadResponseOnly : Opcode::kRcReadResponseFirst;
  }
  return last ? Opcode::kRcReadResponseLast : Opcode::kRcReadResponseMiddle;
}

}  // namespace

void Responses::reserve(std::size_t most) {
  const std::size_t at_once = std::min(most, kReserved);
  responses.reserve(at_once);
  saved.reserve(at_once);
}

void Responses::nak(std::uint8_t code, std::uint32_t psn) {
  nak_due = true;
  nak_syndrome = code;
  nak_psn = psn;
}

bool Responses::has_room() {
  const std::size_t most = stream_.qp.rtr.max_dest_rd_atomic;
  if (responses.size() == most) {
    // A repeated request that the network doubled must not take the place of a new one.
    const auto repeated = std::find_if(responses.begin(), responses.end(),
                                       [](const Response& response) { return response.duplicate; });
    if (repeated != responses.end()) responses.erase(repeated);
  }
  return responses.size() < most;
}

void Responses::push(Response response) {
  stream_.msn = wire::psn_add(stream_.msn, 1);
  response.first_psn = stream_.expected_psn;
  response.msn = stream_.msn;
  saved.push({response.first_psn, response.kind, response.original},
             stream_.qp.rtr.max_dest_rd_atomic);
  responses.push_back(response);
  stream_.expected_psn = wire::psn_add(stream_.expected_psn, response.psns);
  stream_.requests_received = true;
  ack_due = false;  // the response acknowledges what came before
}

// The responses stay in the order of their PSNs.
void Responses::repeat(const Response& response) {
  const auto position = [&](const Response& other) {
    return std::int64_t{-wire::psn_diff(other.first_psn, stream_.expected_psn)};
  };
  const std::int64_t behind = position(response);
  std::erase_if(responses, [&](const Response& other) {
    return position(other) - std::int64_t{other.psns} < behind &&
           position(other) > behind - response.psns;
  });
  if (responses.size() >= stream_.qp.rtr.max_dest_rd_atomic) return;
  const auto later = std::find_if(responses.begin(), responses.end(),
                                  [&](const Response& other) { return position(other) < behind; });
  responses.insert(later, response);
}

void Responses::forget() {
  responses.clear();
  nak_state = NakState::kNone;
  nak_due = ack_due = false;
}

void Responses::enter_error() {
  ack_due = false;
  if (nak_fatal) return;
  nak_due = false;
  responses.clear();
}

wire::Aeth Responses::ack_aeth(std::uint32_t msn) {
  const QpAttributes& qp = stream_.qp;
  if (qp.limits.shared_receive_queue) return {syndrome::kAck | syndrome::kNoCredits, msn};
  // The WQE of a SEND in progress was taken, but its message is not counted in the MSN yet.
  const bool taken = stream_.has_receive && stream_.message == RequestKind::kSend;
  const std::uint8_t code = credit_code(qp.path.host.receives_posted() + (taken ? 1 : 0));
  advertised_zero = code == 0;
  return {static_cast<std::uint8_t>(syndrome::kAck | code), msn};
}

EmitResult Responses::send(Response& response) {
  QpAttributes& qp = stream_.qp;
  const wire::Opcode opcode = opcode_of(response);
  OutPacket out;
  qp.path.address(out.header, opcode, wire::psn_add(response.first_psn, response.sent));
  if (wire::has_aeth(opcode)) out.header.aeth = ack_aeth(response.msn);
  out.header.original = response.original;
  const std::uint64_t offset = std::uint64_t{response.sent} * qp.rtr.mtu;
  out.length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(qp.rtr.mtu, response.length - offset));
  if (out.length > 0) {
    if (!stream_.select_srq(response.srqn)) return EmitResult::kRemoteError;
    out.source = OutPacket::Source::kRegion;
    out.address = response.address + offset;
    out.rkey = response.rkey;
  }
  const EmitResult result = qp.path.emit(out);
  if (result == EmitResult::kOk) ++response.sent;
  return result;
}

EmitResult Responses::send_acknowledgement() {
  Path& path = stream_.qp.path;
  OutPacket out;
  if (nak_due) {
    path.address(out.header, wire::Opcode::kRcAck, nak_psn);
    out.header.aeth = {nak_syndrome, stream_.msn};
  } else {
    path.address(out.header, wire::Opcode::kRcAck, wire::psn_sub(stream_.expected_psn, 1));
    out.header.aeth = ack_aeth(stream_.msn);
  }
  const EmitResult result = path.emit(out);
  if (result == EmitResult::kOk) {
    nak_due = false;
    nak_fatal = false;
    ack_due = unanswered = false;
  }
  return result;
}

unsigned Responses::transmit(unsigned budget, std::optional<std::uint32_t>* failed) {
  unsigned sent = 0;
  while (sent < budget && !responses.empty()) {
    Response& response = responses.front();
    const EmitResult result = send(response);
    if (result == EmitResult::kNoRoom) return sent;
    if (result != EmitResult::kOk) {
      if (response.duplicate) {
        responses.erase(responses.begin());
        continue;
      }
      *failed = wire::psn_add(response.first_psn, response.sent);
      responses.clear();
      break;
    }
    ++sent;
    if (response.sent == response.psns) responses.erase(responses.begin());
  }
  return sent;
}

}  // namespace ferry::transport
