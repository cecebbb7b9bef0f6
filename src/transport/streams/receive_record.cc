#include "transport/streams/receive_record.h"

#include <algorithm>

#include "wire/psn.h"

namespace ferry::transport {
namespace {

template <typename Archive, typename T, typename U>
void visit_responder(Archive& a, T& stream, U& responses) {
  a.value(stream.expected_psn, wire::kPsnMask);
  a.value(stream.msn);
  a.value(responses.nak_state, ResponsesDue::NakState::kRnr);
  a.value(stream.message, RequestKind::kWrite);
  a.value(stream.offset);
  a.value(stream.write.virtual_address);
  a.value(stream.write.rkey);
  a.value(stream.write.dma_length);
  a.value(stream.has_receive);
  a.value(responses.ack_due);
  a.value(responses.nak_due);
  a.value(responses.nak_fatal);
  a.value(responses.nak_syndrome);
  a.value(responses.nak_psn, wire::kPsnMask);
  a.value(stream.requests_received);
  a.value(stream.established_raised);
  a.value(responses.advertised_zero);
}

template <typename Archive, typename T>
void visit_response(Archive& a, T& response) {
  a.value(response.kind, RequestKind::kFlush);
  a.value(response.first_psn, wire::kPsnMask);
  a.value(response.psns);
  a.value(response.sent);
  a.value(response.msn);
  a.value(response.address);
  a.value(response.rkey);
  a.value(response.length);
  a.value(response.original);
  a.value(response.srqn, wire::kPsnMask);
  a.value(response.duplicate);
}

template <typename Archive, typename T>
void visit_saved(Archive& a, T& saved) {
  a.value(saved.psn, wire::kPsnMask);
  a.value(saved.kind, RequestKind::kFlush);
  a.value(saved.original);
}

bool is_answered(RequestKind kind) {
  return kind >= RequestKind::kRead;
}

}  // namespace

void save_receives(const ReceiveStream& stream, const ResponsesDue& responses, Saver& a) {
  visit_responder(a, stream, responses);
  if (stream.has_receive) {
    a.value(stream.receive.wr_id);
    a.value(static_cast<std::uint8_t>(stream.receive.sges.size()));
    for (const Sge& sge : stream.receive.sges) visit_sge(a, sge);
    if (stream.qp.limits.type == ConnectionType::kXrcTarget) a.value(stream.receive_srqn);
  }
  a.value(static_cast<std::uint8_t>(responses.responses.size()));
  for (const Response& response : responses.responses) visit_response(a, response);
  a.value(static_cast<std::uint8_t>(responses.saved.all().size()));
  for (const SavedResult& saved : responses.saved.all()) visit_saved(a, saved);
}

void load_receives(ReceiveStream& stream, ResponsesDue& responses, Loader& a) {
  const ConnectionType type = stream.qp.limits.type;
  const RtrAttributes& rtr = stream.qp.rtr;
  visit_responder(a, stream, responses);
  a.require(stream.msn <= wire::kPsnMask);
  if (stream.has_receive) {
    a.value(stream.receive.wr_id);
    std::uint8_t sges = 0;
    a.value(sges);
    a.require(sges <= kMaxSge);
    if (!a.ok()) return;
    stream.receive.sges.resize(sges);
    for (Sge& sge : stream.receive.sges) visit_sge(a, sge);
    stream.begin_receive();
  }
  if (!a.ok()) return;
  if (stream.has_receive && type == ConnectionType::kXrcTarget) {
    a.value(stream.receive_srqn, wire::kPsnMask);
  }
  const bool sending = stream.message == RequestKind::kSend;
  // A UC QP keeps the WQE of a message that it dropped.
  a.require(type == ConnectionType::kUc ? stream.has_receive || !sending
                                        : stream.has_receive == sending);
  if (sending) a.require(stream.offset <= stream.receive_length);
  if (stream.message == RequestKind::kWrite) {
    a.require(stream.write.dma_length <= kMaxMessage && stream.offset < stream.write.dma_length);
  }
  std::uint8_t count = 0;
  a.value(count);
  a.require(count <= rtr.max_dest_rd_atomic);
  if (!a.ok()) return;
  responses.responses.reserve(rtr.max_dest_rd_atomic);
  for (unsigned i = 0; i < count; ++i) {
    Response response;
    visit_response(a, response);
    const std::uint32_t psns =
        std::max<std::uint32_t>(response.length / rtr.mtu + (response.length % rtr.mtu != 0), 1);
    a.require(is_answered(response.kind) && response.length <= kMaxMessage &&
              (response.kind == RequestKind::kRead || response.length == 0) &&
              response.psns == psns && response.sent < psns && response.msn <= wire::kPsnMask);
    responses.responses.push_back(response);
  }
  a.value(count);
  a.require(count <= rtr.max_dest_rd_atomic);
  if (!a.ok()) return;
  responses.saved.reserve(rtr.max_dest_rd_atomic);
  for (unsigned i = 0; i < count; ++i) {
    SavedResult saved;
    visit_saved(a, saved);
    a.require(is_answered(saved.kind));
    responses.saved.push(saved, rtr.max_dest_rd_atomic);
  }
}

}  // namespace ferry::transport
