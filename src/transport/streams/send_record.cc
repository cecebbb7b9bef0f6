#include "transport/streams/send_record.h"

#include <algorithm>
#include <array>

#include "wire/psn.h"

namespace ferry::transport {
namespace {

template <typename Archive, typename T>
void visit_wqe(Archive& a, T& wqe) {
  a.value(wqe.wr_id);
  a.value(wqe.remote_address);
  a.value(wqe.length, kMaxMessage);
  a.value(wqe.rkey);
  a.value(wqe.immediate);
  a.value(wqe.operation, Operation::kFlush);
  a.value(wqe.local_error, Status::kRnrRetryExceeded);
  a.value(wqe.sge_count);
  a.value(wqe.is_inline);
  a.value(wqe.signaled);
  a.value(wqe.solicited);
  a.value(wqe.fence);
}

// The operands that only some operations have; they follow the scatter/gather elements.
template <typename Archive, typename T, typename U>
void visit_operands(Archive& a, bool xrc, T& wqe, U& operands) {
  if (xrc) a.value(wqe.remote_srqn, wire::kPsnMask);
  switch (wqe.operation) {
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      a.value(operands.compare_add);
      a.value(operands.swap);
      break;
    case Operation::kSendInvalidate:
    case Operation::kLocalInvalidate: a.value(wqe.invalidate_rkey); break;
    case Operation::kBindWindow:
      a.value(operands.binding.window);
      a.value(operands.binding.rkey);
      a.value(operands.binding.lkey);
      a.value(operands.binding.address);
      a.value(operands.binding.length);
      a.value(operands.binding.access);
      break;
    case Operation::kFlush:
      a.value(operands.flush.placement, std::uint8_t{15});
      a.value(operands.flush.selectivity, std::uint8_t{3});
      a.value(operands.flush_length, kMaxMessage);
      break;
    default: break;
  }
}

// The numbers from which all others of the requester follow.
struct RequesterRecord {
  std::uint32_t wqes = 0, assigned = 0;
  std::uint32_t base_psn = 0;      // first PSN of the oldest WQE, or the next PSN
  std::uint32_t acknowledged = 0;  // PSNs of the oldest WQE that are acknowledged
  std::uint32_t unacknowledged = 0;
  std::uint64_t base_ssn = 0;
  std::uint64_t limit_ssn = 0;
  bool unlimited = false;
  bool drained_raised = false;
};

template <typename Archive, typename T>
void visit_requester(Archive& a, T& r) {
  a.value(r.wqes);
  a.value(r.assigned);
  a.value(r.base_psn, wire::kPsnMask);
  a.value(r.acknowledged);
  a.value(r.unacknowledged);
  a.value(r.base_ssn);
  a.value(r.limit_ssn);
  a.value(r.unlimited);
  a.value(r.drained_raised);
}

void load_wqe(Loader& a, const QueueLimits& limits, SendQueue& queue) {
  Wqe wqe;
  visit_wqe(a, wqe);
  std::array<Sge, kMaxSge> sges;
  a.require(wqe.sge_count <= std::min<std::size_t>(limits.max_send_sge, kMaxSge));
  a.require(!wqe.is_inline || (wqe.sge_count == 0 && wqe.length <= limits.max_inline &&
                               wqe.operation != Operation::kRead && !wqe.is_atomic()));
  const bool no_data = wqe.is_local() || wqe.operation == Operation::kFlush;
  a.require(!no_data || (wqe.length == 0 && wqe.sge_count == 0 && !wqe.is_inline));
  const bool eight_bytes = wqe.is_atomic() || wqe.operation == Operation::kAtomicWrite;
  a.require(!eight_bytes || wqe.length == kAtomicBytes);
  if (!a.ok()) return;
  std::uint64_t length = 0;
  for (unsigned k = 0; k < wqe.sge_count; ++k) {
    visit_sge(a, sges[k]);
    length += sges[k].length;
  }
  const std::byte* inline_data = nullptr;
  if (wqe.is_inline) {
    static constexpr std::byte kNothing{};
    inline_data = wqe.length ? a.bytes(wqe.length).data() : &kNothing;
  } else {
    a.require(wqe.is_atomic() ? length >= wqe.length : length == wqe.length);
  }
  WqeOperands operands;
  visit_operands(a, limits.type != ConnectionType::kRc, wqe, operands);
  if (!a.ok()) return;
  queue.push({.wr_id = wqe.wr_id,
              .operation = wqe.operation,
              .signaled = wqe.signaled,
              .solicited = wqe.solicited,
              .fence = wqe.fence,
              .immediate = wqe.immediate,
              .remote_address = wqe.remote_address,
              .rkey = wqe.rkey,
              .length = wqe.operation == Operation::kFlush ? operands.flush_length : wqe.length,
              .sge_count = wqe.sge_count,
              .sges = sges.data(),
              .inline_data = inline_data,
              .compare_add = operands.compare_add,
              .swap = operands.swap,
              .invalidate_rkey = wqe.invalidate_rkey,
              .remote_srqn = wqe.remote_srqn,
              .binding = &operands.binding,
              .flush = operands.flush});
  queue.at(queue.tail() - 1).local_error = wqe.local_error;
}

}  // namespace

void load_sends(SendStream& stream, SendCredits& credits, Loader& a) {
  const QueueLimits& limits = stream.qp.limits;
  RequesterRecord record;
  visit_requester(a, record);
  a.require(record.wqes <= limits.max_send_wr && record.assigned <= record.wqes);
  a.require(record.base_ssn >= 1 && record.base_ssn < 1ull << 62 && record.limit_ssn < 1ull << 62);
  for (std::uint32_t i = 0; i < record.wqes && a.ok(); ++i) load_wqe(a, limits, stream.queue);
  if (!a.ok()) return;

  std::uint64_t psn = kPsnRound + record.base_psn;
  stream.una = psn + record.acknowledged;
  stream.max_sent = stream.una + record.unacknowledged;
  stream.next_ssn = record.base_ssn;
  for (std::uint32_t i = 0; i < record.assigned; ++i) {
    a.require(i == 0 || stream.max_sent >= psn);
    stream.queue.assign(psn, stream.next_ssn, stream.qp.rtr.mtu);
    const Wqe& wqe = stream.queue.at(stream.queue.assigned() - 1);
    if (i == 0) a.require(record.acknowledged < wqe.psn_count);
    if (wqe.has_response()) ++stream.pending_rd_atomics;
    psn += wqe.psn_count;
    stream.next_ssn += wqe.ssn_count;
  }
  a.require(record.assigned > 0 || record.acknowledged == 0);
  a.require(stream.max_sent <= psn && record.unacknowledged <= kPsnWindow);
  stream.next = stream.una;
  stream.cursor = stream.queue.head();
  stream.completed_ssn = static_cast<std::int64_t>(record.base_ssn) - 1;
  credits.limit_ssn = static_cast<std::int64_t>(record.limit_ssn);
  credits.unlimited = record.unlimited;
  stream.drained_raised = record.drained_raised;
}

void save_sends(const SendStream& stream, const SendCredits& credits, Saver& a) {
  const SendQueue& queue = stream.queue;
  RequesterRecord record{.wqes = static_cast<std::uint32_t>(queue.tail() - queue.head()),
                         .assigned = static_cast<std::uint32_t>(queue.assigned() - queue.head()),
                         .unacknowledged = static_cast<std::uint32_t>(stream.max_sent - stream.una),
                         .base_ssn = stream.next_ssn,
                         .limit_ssn = static_cast<std::uint64_t>(credits.limit_ssn),
                         .unlimited = credits.unlimited,
                         .drained_raised = stream.drained_raised};
  std::uint64_t base = stream.una;
  if (record.assigned > 0) {
    base = queue.at(queue.head()).first_psn;
    record.base_ssn = queue.at(queue.head()).first_ssn;
  }
  record.base_psn = static_cast<std::uint32_t>(base & wire::kPsnMask);
  record.acknowledged = static_cast<std::uint32_t>(stream.una - base);
  visit_requester(a, record);
  for (std::uint64_t i = queue.head(); i != queue.tail(); ++i) {
    const Wqe& wqe = queue.at(i);
    visit_wqe(a, wqe);
    for (const Sge& sge : queue.sges(i)) visit_sge(a, sge);
    if (wqe.is_inline) a.bytes(queue.inline_data(i), wqe.length);
    visit_operands(a, stream.qp.limits.type != ConnectionType::kRc, wqe, queue.operands(i));
  }
}

}  // namespace ferry::transport
