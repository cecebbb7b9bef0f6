#include "transport/connection_state.h"

// The object record of a QP, as Connection::save() writes it (docs/image.md "QP"): little-endian,
// in the order of the functions visit() below, each of which serves both directions. Not saved,
// since the place it goes to has others: times (timers start anew), what is in flight (the
// requester goes back to the first unacknowledged PSN) and the window. PSNs and SSNs of WQEs follow
// from those of the oldest one.
namespace ferry::transport {
namespace {

class Saver {
 public:
  static constexpr bool kLoading = false;
  explicit Saver(wire::ByteWriter& out) : out_(out) {}
  template <typename T>
  void value(const T& value, T = {}) {
    if constexpr (std::is_same_v<T, bool>) {
      out_.put(static_cast<std::uint8_t>(value));
    } else {
      out_.put(value);
    }
  }
  void require(bool) {}

 private:
  wire::ByteWriter& out_;
};

class Loader {
 public:
  static constexpr bool kLoading = true;
  explicit Loader(wire::ByteReader& in) : in_(in) {}
  // Values above `most` are refused; 0 allows any.
  template <typename T>
  void value(T& value, T most = {}) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = in_.get<std::uint8_t>();
      require(byte <= 1);
      value = byte == 1;
    } else if constexpr (std::is_same_v<T, port::Endpoint>) {
      value = in_.get_endpoint();
    } else if constexpr (std::is_enum_v<T>) {
      const auto code = in_.get<std::underlying_type_t<T>>();
      const bool known = code <= static_cast<std::underlying_type_t<T>>(most);
      require(known);
      value = known ? static_cast<T>(code) : T{};  // nobody looks at an impossible one
    } else {
      value = in_.get<T>();
      require(most == T{} || value <= most);
    }
  }
  void require(bool holds) {
    if (!holds) in_.fail();
  }
  bool ok() const { return in_.ok(); }

 private:
  wire::ByteReader& in_;
};

bool is_mtu(std::uint32_t mtu) {
  return mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0;
}

template <typename Archive, typename T>
void visit_attributes(Archive& a, T& s) {
  a.value(s.qp_state, QpState::kError);
  a.value(s.rtr.peer);
  a.value(s.rtr.peer_qpn, wire::kPsnMask);
  a.value(s.rtr.peer_wire_qpn, wire::kPsnMask);
  a.value(s.rtr.mtu);
  a.value(s.rtr.expected_psn);
  a.value(s.rtr.max_dest_rd_atomic);
  a.value(s.rtr.min_rnr_timer, std::uint8_t{31});
  a.value(s.rts.next_psn);
  a.value(s.rts.timeout, std::uint8_t{31});
  a.value(s.rts.retry_count, std::uint8_t{7});
  a.value(s.rts.rnr_retry, std::uint8_t{7});
  a.value(s.rts.max_rd_atomic);
  a.value(s.peer);
  a.value(s.peer_wire_qpn, wire::kPsnMask);
  auto& c = s.counters;
  for (auto* counter : {&c.sent_packets, &c.received_packets, &c.sent_bytes, &c.received_bytes,
                        &c.retransmitted_packets, &c.duplicate_packets, &c.out_of_sequence,
                        &c.rnr_naks_sent, &c.rnr_naks_received, &c.timeouts, &c.dropped_forged}) {
    a.value(*counter);
  }
}

template <typename Archive, typename T>
void visit_migration(Archive& a, T& m) {
  a.value(m.stopped);
  a.value(m.paused);
  a.value(m.resume_pending);
  a.value(m.peer_class, PeerClass::kUnmodified);
  a.value(m.cookie);
  a.value(m.peer_cookie);
  a.value(m.epoch);
  a.value(m.peer_epoch);
  a.value(m.peer_resumed);
}

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

template <typename Archive, typename T>
void visit_sge(Archive& a, T& sge) {
  a.value(sge.address);
  a.value(sge.length);
  a.value(sge.lkey);
}

// After the elements: what only some operations have.
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

template <typename Archive, typename T>
void visit_responder(Archive& a, T& r) {
  a.value(r.expected_psn, wire::kPsnMask);
  a.value(r.msn);
  a.value(r.nak_state, ResponderState::NakState::kRnr);
  a.value(r.message, RequestKind::kWrite);
  a.value(r.offset);
  a.value(r.write.virtual_address);
  a.value(r.write.rkey);
  a.value(r.write.dma_length);
  a.value(r.has_receive);
  a.value(r.ack_due);
  a.value(r.nak_due);
  a.value(r.nak_fatal);
  a.value(r.nak_syndrome);
  a.value(r.nak_psn, wire::kPsnMask);
  a.value(r.requests_received);
  a.value(r.established_raised);
  a.value(r.advertised_zero);
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

// What the requester's numbers follow from.
struct RequesterRecord {
  std::uint32_t wqes = 0, assigned = 0;
  std::uint32_t base_psn = 0;      // first PSN of the oldest WQE, or the next PSN
  std::uint32_t acknowledged = 0;  // PSNs of the oldest WQE
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

// Loads the WQEs and what they imply. Nothing is allocated: the queue has its storage.
void load_requester(Loader& a, wire::ByteReader& in, const QueueLimits& limits, std::uint32_t mtu,
                    RequesterState& req) {
  RequesterRecord record;
  visit_requester(a, record);
  a.require(record.wqes <= limits.max_send_wr && record.assigned <= record.wqes);
  a.require(record.base_ssn >= 1 && record.base_ssn < 1ull << 62 && record.limit_ssn < 1ull << 62);
  for (std::uint32_t i = 0; i < record.wqes && a.ok(); ++i) {
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
      inline_data = wqe.length ? in.take(wqe.length).data() : &kNothing;
    } else {
      a.require(wqe.is_atomic() ? length >= wqe.length : length == wqe.length);
    }
    WqeOperands operands;
    visit_operands(a, limits.type != ConnectionType::kRc, wqe, operands);
    if (!a.ok()) return;
    req.queue.push(
        {.wr_id = wqe.wr_id,
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
    req.queue.at(req.queue.tail() - 1).local_error = wqe.local_error;
  }
  if (!a.ok()) return;

  std::uint64_t psn = kPsnRound + record.base_psn;
  req.una = psn + record.acknowledged;
  req.max_sent = req.una + record.unacknowledged;
  req.next_ssn = record.base_ssn;
  for (std::uint32_t i = 0; i < record.assigned; ++i) {
    a.require(i == 0 || req.max_sent >= psn);
    req.queue.assign(psn, req.next_ssn, mtu);
    const Wqe& wqe = req.queue.at(req.queue.assigned() - 1);
    if (i == 0) a.require(record.acknowledged < wqe.psn_count);
    if (wqe.has_response()) ++req.pending_rd_atomics;
    psn += wqe.psn_count;
    req.next_ssn += wqe.ssn_count;
  }
  a.require(record.assigned > 0 || record.acknowledged == 0);
  a.require(req.max_sent <= psn && record.unacknowledged <= kPsnWindow);
  req.next = req.una;
  req.cursor = req.queue.head();
  req.completed_ssn = static_cast<std::int64_t>(record.base_ssn) - 1;
  req.limit_ssn = static_cast<std::int64_t>(record.limit_ssn);
  req.unlimited = record.unlimited;
  req.drained_raised = record.drained_raised;
  req.window = kMaxWindow;
}

void save_requester(Saver& a, wire::ByteWriter& out, const QueueLimits& limits,
                    const RequesterState& req) {
  const SendQueue& queue = req.queue;
  RequesterRecord record{.wqes = static_cast<std::uint32_t>(queue.tail() - queue.head()),
                         .assigned = static_cast<std::uint32_t>(queue.assigned() - queue.head()),
                         .unacknowledged = static_cast<std::uint32_t>(req.max_sent - req.una),
                         .base_ssn = req.next_ssn,
                         .limit_ssn = static_cast<std::uint64_t>(req.limit_ssn),
                         .unlimited = req.unlimited,
                         .drained_raised = req.drained_raised};
  std::uint64_t base = req.una;
  if (record.assigned > 0) {
    base = queue.at(queue.head()).first_psn;
    record.base_ssn = queue.at(queue.head()).first_ssn;
  }
  record.base_psn = static_cast<std::uint32_t>(base & wire::kPsnMask);
  record.acknowledged = static_cast<std::uint32_t>(req.una - base);
  visit_requester(a, record);
  for (std::uint64_t i = queue.head(); i != queue.tail(); ++i) {
    const Wqe& wqe = queue.at(i);
    visit_wqe(a, wqe);
    for (const Sge& sge : queue.sges(i)) visit_sge(a, sge);
    if (wqe.is_inline) out.append(queue.inline_data(i), wqe.length);
    visit_operands(a, limits.type != ConnectionType::kRc, wqe, queue.operands(i));
  }
}

void load_responder(Loader& a, const QueueLimits& limits, const RtrAttributes& rtr,
                    ResponderState& rsp) {
  visit_responder(a, rsp);
  a.require(rsp.msn <= wire::kPsnMask);
  if (rsp.has_receive) {
    a.value(rsp.receive.wr_id);
    std::uint8_t sges = 0;
    a.value(sges);
    a.require(sges <= kMaxSge);
    if (!a.ok()) return;
    rsp.receive.sges.resize(sges);
    for (Sge& sge : rsp.receive.sges) visit_sge(a, sge);
    rsp.receive_length = rsp.receive.length();
  }
  if (!a.ok()) return;
  if (rsp.has_receive && limits.type == ConnectionType::kXrcTarget) {
    a.value(rsp.receive_srqn, wire::kPsnMask);
  }
  const bool sending = rsp.message == RequestKind::kSend;
  // UC keeps the WQE of a message that it dropped.
  a.require(limits.type == ConnectionType::kUc ? rsp.has_receive || !sending
                                               : rsp.has_receive == sending);
  if (sending) a.require(rsp.offset <= rsp.receive_length);
  if (rsp.message == RequestKind::kWrite) {
    a.require(rsp.write.dma_length <= kMaxMessage && rsp.offset < rsp.write.dma_length);
  }
  std::uint8_t count = 0;
  a.value(count);
  a.require(count <= rtr.max_dest_rd_atomic);
  if (!a.ok()) return;
  rsp.responses.reserve(rtr.max_dest_rd_atomic);
  for (unsigned i = 0; i < count; ++i) {
    Response response;
    visit_response(a, response);
    const std::uint32_t psns =
        std::max<std::uint32_t>(response.length / rtr.mtu + (response.length % rtr.mtu != 0), 1);
    a.require(is_answered(response.kind) && response.length <= kMaxMessage &&
              (response.kind == RequestKind::kRead || response.length == 0) &&
              response.psns == psns && response.sent < psns && response.msn <= wire::kPsnMask);
    rsp.responses.push_back(response);
  }
  a.value(count);
  a.require(count <= rtr.max_dest_rd_atomic);
  if (!a.ok()) return;
  rsp.saved.reserve(rtr.max_dest_rd_atomic);
  for (unsigned i = 0; i < count; ++i) {
    SavedResult saved;
    visit_saved(a, saved);
    a.require(is_answered(saved.kind));
    rsp.saved.push(saved, rtr.max_dest_rd_atomic);
  }
}

}  // namespace

void Connection::State::save(wire::ByteWriter& out) const {
  Saver a(out);
  visit_attributes(a, *this);
  visit_migration(a, mig);
  save_requester(a, out, limits, req);
  visit_responder(a, rsp);
  if (rsp.has_receive) {
    a.value(rsp.receive.wr_id);
    a.value(static_cast<std::uint8_t>(rsp.receive.sges.size()));
    for (const Sge& sge : rsp.receive.sges) visit_sge(a, sge);
    if (limits.type == ConnectionType::kXrcTarget) a.value(rsp.receive_srqn);
  }
  a.value(static_cast<std::uint8_t>(rsp.responses.size()));
  for (const Response& response : rsp.responses) visit_response(a, response);
  a.value(static_cast<std::uint8_t>(rsp.saved.all().size()));
  for (const SavedResult& saved : rsp.saved.all()) visit_saved(a, saved);
}

bool Connection::State::load(wire::ByteReader& in) {
  Loader a(in);
  visit_attributes(a, *this);
  a.require(!receiving() || is_mtu(rtr.mtu));
  if (!is_mtu(rtr.mtu)) rtr.mtu = RtrAttributes().mtu;
  visit_migration(a, mig);
  a.require(mig.peer_class != PeerClass::kFerry || mig.peer_cookie != 0);
  a.require(!receiving() || mig.cookie != 0);
  load_requester(a, in, limits, rtr.mtu, req);
  a.require(requesting() || req.queue.empty());
  load_responder(a, limits, rtr, rsp);
  if (!a.ok()) {
    forget();
    qp_state = QpState::kReset;
    return false;
  }
  skip_local();
  req.rd_atomics_in_flight.reserve(rts.max_rd_atomic);
  req.retries_left = rts.retry_count;
  req.rnr_retries_left = rts.rnr_retry;
  mig.presumed_standard = settings.enabled && mig.peer_class == PeerClass::kUnmodified;
  // Not Stopped: what waits for a time begins at the next call that brings one.
  constexpr Time kAtOnce = Time::min();
  if (receiving() && settings.enabled && !mig.stopped) {
    if (mig.paused) mig.probe = {kAtOnce, settings.probe_first};
    if (mig.resume_pending) mig.resume = {kAtOnce, settings.resume_first};
    if (mig.peer_class == PeerClass::kUnknown) {
      mig.hello = {kAtOnce, settings.hello_first};
      mig.hellos_left = settings.hello_repeats;
    }
  }
  return true;
}

void Connection::save(wire::ByteWriter& out) const {
  state_->save(out);
}
bool Connection::load(wire::ByteReader& in) {
  return state_->load(in);
}

}  // namespace ferry::transport
