#include "cm/manager.h"

#include <algorithm>
#include <cerrno>

namespace ferry::cm {
namespace {

template <std::size_t N>
Private<N> private_data(std::span<const std::byte> data) {
  Private<N> result{};
  std::copy_n(data.begin(), std::min(data.size(), N), result.begin());
  return result;
}

}  // namespace

Manager::Manager(std::uint16_t tag, std::function<std::uint64_t()> random)
    : tag_(tag), random_(std::move(random)), next_index_(static_cast<std::uint16_t>(random_())) {}

// --- Entries

Manager::Entry* Manager::entry(CommId id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

const Connection* Manager::find(CommId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() || found->second.forgotten ? nullptr : &found->second.c;
}

// Takes indices in turn, so that a freed one is not used again soon. ID 0 names no connection.
Manager::Entry* Manager::make(CommId* id) {
  if (entries_.size() >= 0xFFFF) return nullptr;
  do {
    *id = CommId{tag_} << 16 | next_index_++;
  } while (*id == 0 || entries_.contains(*id));
  Entry& e = entries_[*id];
  e.c.local_id = *id;
  return &e;
}

void Manager::erase(CommId id) {
  set_deadline(entries_[id], kNever);
  entries_.erase(id);
}

void Manager::set_deadline(Entry& e, Time deadline) {
  if (e.deadline != kNever) deadlines_.erase({e.deadline, e.c.local_id});
  e.deadline = deadline;
  if (deadline != kNever) deadlines_.insert({deadline, e.c.local_id});
}

void Manager::shift_time(Time by) {
  std::set<std::pair<Time, CommId>> shifted;
  for (const auto& [deadline, id] : deadlines_) {
    entries_[id].deadline = deadline + by;
    shifted.insert({deadline + by, id});
  }
  deadlines_.swap(shifted);
}

void Manager::set_addresses(CommId id, const port::Address& from, const port::Address& to) {
  Entry* e = entry(id);
  if (e == nullptr) return;
  e->c.from = from;
  e->c.to = to;
}

// --- Output

void Manager::emit(const Entry& e, Body body) {
  datagrams_.push_back({e.c.local_id, e.c.from, e.c.to, encode({e.transaction_id, body})});
}

void Manager::send(Entry& e, Body body) {
  e.last = encode({e.transaction_id, body});
  repeat(e);
}

void Manager::repeat(Entry& e) {
  datagrams_.push_back({e.c.local_id, e.c.from, e.c.to, e.last});
}

void Manager::send_until_answered(Entry& e, Body body, Time now) {
  send(e, body);
  e.retries = e.refusals = 0;
  e.wait = kFirstWait;
  set_deadline(e, now + e.wait);
}

void Manager::answer(const Datagram& to, std::uint64_t transaction_id, Body body) {
  datagrams_.push_back({0, to.to, to.from, encode({transaction_id, body})});
}

bool Manager::next_datagram(Datagram* out) {
  if (datagrams_.empty()) return false;
  *out = datagrams_.front();
  datagrams_.pop_front();
  return true;
}

void Manager::post(Entry& e, Event::Type type, Body body, int error) {
  if (!e.forgotten) events_.push_back({type, e.c.local_id, body, error});
}

bool Manager::next_event(Event* out) {
  if (events_.empty()) return false;
  *out = events_.front();
  events_.pop_front();
  return true;
}

// --- Calls of the owner

CommId Manager::connect(const Req& request, const port::Address& from, const port::Address& to,
                        Time now) {
  CommId id = 0;
  Entry* e = make(&id);
  if (e == nullptr) return 0;
  Req req = request;
  req.local_id = id;
  req.remote_timeout = req.local_timeout = kResponseTimeout;
  req.max_cm_retries = kMaxRetries;
  Connection& c = e->c;
  c.state = State::kReqSent;
  c.service_id = req.service_id;
  c.from = from;
  c.to = to;
  c.transport = req.transport;
  c.local_qpn = req.qpn;
  c.rq_psn = req.psn;
  c.mtu = req.mtu;
  c.path = req.path;
  c.responder_resources = req.responder_resources;
  c.initiator_depth = req.initiator_depth;
  c.retry_count = req.retry_count;
  c.rnr_retry = req.rnr_retry;
  e->transaction_id = random_();
  send_until_answered(*e, req, now);
  return id;
}

int Manager::accept(CommId id, const Reply& reply, Time now) {
  Entry* e = entry(id);
  if (e == nullptr || e->c.state != State::kReqReceived) return EINVAL;
  Connection& c = e->c;
  c.local_qpn = reply.qpn;
  c.rq_psn = reply.psn;
  c.responder_resources = reply.responder_resources;
  c.initiator_depth = reply.initiator_depth;
  Rep rep;
  rep.local_id = id;
  rep.remote_id = c.remote_id;
  rep.qpn = reply.qpn;
  rep.psn = reply.psn;
  rep.responder_resources = reply.responder_resources;
  rep.initiator_depth = reply.initiator_depth;
  rep.flow_control = reply.flow_control;
  rep.srq = reply.srq;
  rep.rnr_retry = reply.rnr_retry;
  rep.guid = reply.guid;
  rep.data = private_data<196>(reply.data);
  c.state = State::kRepSent;
  send_until_answered(*e, rep, now);
  return 0;
}

int Manager::establish(CommId id, Time) {
  Entry* e = entry(id);
  if (e == nullptr || e->c.state != State::kRepReceived) return EINVAL;
  e->c.state = State::kEstablished;
  send(*e, Rtu{id, e->c.remote_id, {}});
  return 0;
}

int Manager::notify(CommId id) {
  Entry* e = entry(id);
  if (e == nullptr || e->c.state != State::kRepSent) return EINVAL;
  e->c.state = State::kEstablished;
  set_deadline(*e, kNever);
  post(*e, Event::Type::kEstablished);
  return 0;
}

void Manager::reject_for(Entry& e, Reason reason, std::span<const std::byte> data, Time now) {
  Rej rej;
  rej.local_id = e.c.local_id;
  rej.remote_id = e.c.remote_id;
  rej.message = e.c.passive ? Answered::kReq : Answered::kRep;
  if (e.c.state == State::kReqSent) rej.message = Answered::kOther;
  if (e.c.state == State::kRepSent) rej.message = Answered::kOther;
  rej.reason = reason;
  rej.data = private_data<148>(data);
  send(e, rej);
  finish(e, State::kAnswered, now);
}

int Manager::reject(CommId id, Reason reason, std::span<const std::byte> data, Time now) {
  Entry* e = entry(id);
  if (e == nullptr || (e->c.state != State::kReqReceived && e->c.state != State::kRepReceived)) {
    return EINVAL;
  }
  reject_for(*e, reason, data, now);
  return 0;
}

int Manager::disconnect(CommId id, Time now) {
  Entry* e = entry(id);
  if (e == nullptr) return EINVAL;
  if (e->c.state == State::kEstablished) {
    e->c.state = State::kDreqSent;
    e->transaction_id = random_();
    send_until_answered(*e, Dreq{id, e->c.remote_id, e->c.remote_qpn, {}}, now);
    return 0;
  }
  if (e->c.state == State::kDreqReceived) {
    send(*e, Drep{id, e->c.remote_id, {}});
    timewait(*e, now);
    return 0;
  }
  return EINVAL;
}

CommId Manager::resolve(const SidrReq& request, const port::Address& from, const port::Address& to,
                        Time now) {
  CommId id = 0;
  Entry* e = make(&id);
  if (e == nullptr) return 0;
  SidrReq req = request;
  req.request_id = id;
  e->c.state = State::kSidrReqSent;
  e->c.service_id = req.service_id;
  e->c.from = from;
  e->c.to = to;
  e->transaction_id = random_();
  send_until_answered(*e, req, now);
  return id;
}

int Manager::answer_sidr(CommId id, SidrStatus status, std::uint32_t qpn, std::uint32_t qkey,
                         std::span<const std::byte> data, Time now) {
  Entry* e = entry(id);
  if (e == nullptr || e->c.state != State::kSidrReqReceived) return EINVAL;
  SidrRep rep;
  rep.request_id = e->c.remote_id;
  rep.status = status;
  rep.qpn = qpn;
  rep.service_id = e->c.service_id;
  rep.qkey = qkey;
  rep.data = private_data<136>(data);
  send(*e, rep);
  finish(*e, State::kAnswered, now);
  return 0;
}

void Manager::forget(CommId id, Time now) {
  Entry* e = entry(id);
  if (e == nullptr || e->forgotten) return;
  e->forgotten = true;
  std::erase_if(events_, [id](const Event& event) { return event.id == id; });
  switch (e->c.state) {
    case State::kReqSent: reject_for(*e, Reason::kTimeout, {}, now); break;
    case State::kReqReceived:
    case State::kRepSent:
    case State::kRepReceived: reject_for(*e, Reason::kConsumer, {}, now); break;
    case State::kEstablished:
    case State::kDreqReceived: disconnect(id, now); break;
    case State::kSidrReqReceived: answer_sidr(id, SidrStatus::kRejected, 0, 0, {}, now); break;
    case State::kSidrReqSent:
    case State::kIdle: erase(id); break;
    case State::kDreqSent:
    case State::kTimewait:
    case State::kAnswered: break;  // its deadline ends it
  }
}

// --- Time

// Ends an entry. In kAnswered it keeps its last message for kAnswerKept, and is kIdle then. A kIdle
// entry is erased as soon as its owner has let go of it.
void Manager::finish(Entry& e, State state, Time now) {
  e.c.state = state;
  set_deadline(e, state == State::kAnswered ? now + kAnswerKept : kNever);
  if (state == State::kIdle && e.forgotten) erase(e.c.local_id);
}

// Long enough for every packet of the connection to die (clause 12.9.8.4).
void Manager::timewait(Entry& e, Time now) {
  e.c.state = State::kTimewait;
  set_deadline(e, now + timeout_of(e.c.path.ack_timeout));
}

void Manager::timed_out(Entry& e, Time now) {
  switch (e.c.state) {
    case State::kReqSent:
    case State::kRepSent: {
      Rej rej;
      rej.local_id = e.c.local_id;
      rej.remote_id = e.c.remote_id;
      rej.message = e.c.passive ? Answered::kRep : Answered::kReq;
      rej.reason = Reason::kTimeout;
      emit(e, rej);
      [[fallthrough]];
    }
    case State::kSidrReqSent:
      post(e, Event::Type::kUnreachable, {}, ETIMEDOUT);
      finish(e, State::kIdle, now);
      break;
    case State::kDreqSent:
      post(e, Event::Type::kDisconnected, {}, ETIMEDOUT);
      timewait(e, now);
      break;
    default: break;
  }
}

void Manager::handle_timeouts(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const CommId id = deadlines_.begin()->second;
    Entry& e = entries_[id];
    if (e.c.state == State::kTimewait) {
      post(e, Event::Type::kTimewaitExit);
      finish(e, State::kIdle, now);
    } else if (e.c.state == State::kAnswered) {
      finish(e, State::kIdle, now);
    } else if (e.retries < kMaxRetries) {
      ++e.retries;
      e.wait = std::min(e.wait * 2, timeout_of(kResponseTimeout));
      repeat(e);
      set_deadline(e, now + e.wait);
    } else {
      timed_out(e, now);
    }
  }
}

// Counts a refusal, at most one for each transmission. True: the request ends now.
bool Manager::refused(Entry& e) {
  if (e.refusals <= e.retries) ++e.refusals;
  return e.refusals >= kRefusals;
}

void Manager::failed(const port::Address& to, int error, Time now) {
  std::vector<CommId> ids;
  for (auto& [id, e] : entries_) {
    const State state = e.c.state;
    const bool asks = state == State::kReqSent || state == State::kRepSent ||
                      state == State::kDreqSent || state == State::kSidrReqSent;
    if (asks && e.c.to == to && refused(e)) ids.push_back(id);
  }
  for (const CommId id : ids) {
    Entry& e = entries_[id];
    const int other_error = error != ECONNREFUSED ? error : 0;
    if (e.c.state == State::kDreqSent) {
      post(e, Event::Type::kDisconnected, {}, other_error);
      timewait(e, now);
      continue;
    }
    if (other_error != 0) {
      post(e, Event::Type::kUnreachable, {}, other_error);
    } else if (e.c.state == State::kSidrReqSent) {
      SidrRep rep;
      rep.request_id = id;
      rep.status = SidrStatus::kUnsupported;
      post(e, Event::Type::kSidrReply, rep);
    } else {
      Rej rej;
      rej.remote_id = id;
      rej.reason =
          e.c.state == State::kReqSent ? Reason::kInvalidServiceId : Reason::kInvalidCommId;
      post(e, Event::Type::kRejected, rej);
    }
    finish(e, State::kIdle, now);
  }
}

bool Manager::awaits_disconnect() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& e) { return e.second.c.state == State::kDreqSent; });
}

}  // namespace ferry::cm
