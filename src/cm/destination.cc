#include "cm/destination.h"

namespace ferry::cm {
namespace {

Destination destination(const Req& m) {
  return {std::nullopt, m.service_id};
}
Destination destination(const SidrReq& m) {
  return {std::nullopt, m.service_id};
}
Destination destination(const SidrRep& m) {
  return {m.request_id};
}
template <typename T>
Destination destination(const T& m) {
  return {m.remote_id};
}

}  // namespace

std::optional<Destination> destination_of(std::span<const std::byte> mad) {
  const auto message = parse(mad);
  if (!message) return std::nullopt;
  return std::visit([](const auto& body) { return destination(body); }, message->body);
}

std::optional<Mad> redirection_of(std::span<const std::byte> mad, const port::Address& elsewhere) {
  const auto message = parse(mad);
  if (!message) return std::nullopt;
  Body body;
  if (const auto* req = std::get_if<Req>(&message->body)) {
    Rej rej;
    rej.remote_id = req->local_id;
    rej.reason = Reason::kRedirect;
    rej.info_length = kClassPortInfoLength;
    rej.info = class_port_info(elsewhere);
    body = rej;
  } else if (const auto* sidr = std::get_if<SidrReq>(&message->body)) {
    SidrRep answer;
    answer.request_id = sidr->request_id;
    answer.status = SidrStatus::kRedirect;
    answer.service_id = sidr->service_id;
    answer.info_length = kClassPortInfoLength;
    answer.info = class_port_info(elsewhere);
    body = answer;
  } else {
    return std::nullopt;
  }
  return encode({message->transaction_id, body});
}

std::optional<Mad> answer_for_nobody(std::span<const std::byte> mad) {
  const auto message = parse(mad);
  if (!message) return std::nullopt;
  Body body;
  if (const auto* req = std::get_if<Req>(&message->body)) {
    Rej rej;
    rej.remote_id = req->local_id;
    rej.reason = Reason::kInvalidServiceId;
    body = rej;
  } else if (const auto* rep = std::get_if<Rep>(&message->body)) {
    Rej rej;
    rej.local_id = rep->remote_id;
    rej.remote_id = rep->local_id;
    rej.message = Answered::kRep;
    rej.reason = Reason::kInvalidCommId;
    body = rej;
  } else if (const auto* dreq = std::get_if<Dreq>(&message->body)) {
    body = Drep{dreq->remote_id, dreq->local_id, {}};
  } else if (const auto* sidr = std::get_if<SidrReq>(&message->body)) {
    SidrRep refusal;
    refusal.request_id = sidr->request_id;
    refusal.status = SidrStatus::kUnsupported;
    refusal.service_id = sidr->service_id;
    body = refusal;
  } else {
    return std::nullopt;
  }
  return encode({message->transaction_id, body});
}

}  // namespace ferry::cm
