#include <algorithm>
#include <cerrno>

#include "cm/manager.h"

// What each message does to the state machines.
namespace ferry::cm {
namespace {

constexpr unsigned kMaxRedirections = 8;

bool is_over(State state) {
  return state == State::kIdle || state == State::kAnswered;
}

// Notes what a request says of its connection, as the side counts it that is asked.
void describe(const Datagram& d, const Req& m, Connection* c) {
  c->passive = true;
  c->remote_id = m.local_id;
  c->service_id = m.service_id;
  c->from = d.to;
  c->to = d.from;
  c->remote_guid = m.guid;
  c->transport = m.transport;
  c->remote_qpn = m.qpn;
  c->sq_psn = m.psn;
  c->mtu = m.mtu;
  c->path = m.path;
  std::swap(c->path.local, c->path.remote);
  c->responder_resources = m.initiator_depth;
  c->initiator_depth = m.responder_resources;
  c->retry_count = m.retry_count;
  c->rnr_retry = m.rnr_retry;
}

}  // namespace

void Manager::handle(const Datagram& datagram, Time now) {
  const auto message = parse(datagram.mad);
  if (!message) return;
  std::visit([&](const auto& body) { handle(datagram, message->transaction_id, body, now); },
             message->body);
}

Manager::Entry* Manager::request_seen(const Req& m) {
  for (auto& [id, e] : entries_) {
    if (e.c.passive && e.c.remote_id == m.local_id && e.c.remote_guid == m.guid) return &e;
  }
  return nullptr;
}

// The same request has come before.
void Manager::answer_again(Entry& e) {
  switch (e.c.state) {
    case State::kReqReceived:
      emit(e, Mra{e.c.local_id, e.c.remote_id, Answered::kReq, kServiceTimeout, {}});
      break;
    case State::kRepSent:
    case State::kAnswered: repeat(e); break;
    default: break;
  }
}

// The connection that the QP of a new request has left without a word (clause 12.9.8.3).
Manager::Entry* Manager::deserted_by(const Req& m) {
  for (auto& [id, e] : entries_) {
    const bool up = e.c.state == State::kEstablished || e.c.state == State::kRepSent;
    if (up && e.c.remote_guid == m.guid && e.c.remote_qpn == m.qpn) return &e;
  }
  return nullptr;
}

void Manager::handle(const Datagram& d, std::uint64_t transaction, const Req& m, Time now) {
  const auto refuse = [&](Reason reason) {
    Rej rej;
    rej.remote_id = m.local_id;
    rej.reason = reason;
    answer(d, transaction, rej);
  };
  if (Entry* e = request_seen(m)) {
    if (e->transaction_id == transaction) return answer_again(*e);
    // Another request under the same ID: the sender began anew and has forgotten the old one.
    if (!is_over(e->c.state) && e->c.state != State::kTimewait) {
      return refuse(Reason::kStaleConnection);
    }
    e->c.remote_id = 0;
  }
  if (!accepts_ || !accepts_(m.service_id, d.to)) return refuse(Reason::kInvalidServiceId);
  if (m.transport != Transport::kRc && m.transport != Transport::kUc &&
      m.transport != Transport::kXrc) {
    return refuse(Reason::kInvalidTransport);
  }
  if (Entry* e = deserted_by(m)) {
    refuse(Reason::kStaleConnection);
    set_deadline(*e, kNever);
    post(*e, Event::Type::kDisconnected);
    return timewait(*e, now);
  }
  CommId id = 0;
  Entry* e = make(&id);
  if (e == nullptr) return refuse(Reason::kNoResources);
  e->transaction_id = transaction;
  e->c.state = State::kReqReceived;
  describe(d, m, &e->c);
  post(*e, Event::Type::kRequest, m);
}

void Manager::handle(const Datagram&, std::uint64_t, const Mra& m, Time now) {
  Entry* e = entry(m.remote_id);
  if (e == nullptr) return;
  const bool fits = (e->c.state == State::kReqSent && m.message == Answered::kReq) ||
                    (e->c.state == State::kRepSent && m.message == Answered::kRep);
  if (!fits) return;
  e->retries = 0;
  set_deadline(*e, now + timeout_of(m.service_timeout) + kFirstWait);
}

// Sends the request of `e` again, to the CM that `info` names. The path in it stays as it was: by
// that path both programs name the connection. False: `info` names no CM that can be asked, or the
// answer came from elsewhere, or there were too many redirections.
bool Manager::redirect(Entry& e, const Datagram& answer, const Private<72>& info, Time now) {
  const auto elsewhere = redirect_of(info);
  if (!elsewhere || answer.from != e.c.to || elsewhere->is_ipv4() != e.c.to.is_ipv4() ||
      e.redirections++ >= kMaxRedirections) {
    return false;
  }
  e.c.to = *elsewhere;
  repeat(e);
  e.retries = 0;
  e.refusals = 0;
  e.wait = kFirstWait;
  set_deadline(e, now + e.wait);
  return true;
}

void Manager::handle(const Datagram& d, std::uint64_t, const Rej& m, Time now) {
  Entry* e = entry(m.remote_id);
  if (e != nullptr && e->c.state == State::kReqSent && m.reason == Reason::kRedirect &&
      redirect(*e, d, m.info, now)) {
    return;
  }
  if (e == nullptr && m.remote_id == 0) {
    // The other side gave up before it knew our ID.
    for (auto& [id, other] : entries_) {
      if (other.c.passive && other.c.state == State::kReqReceived &&
          other.c.remote_id == m.local_id) {
        e = &other;
      }
    }
  }
  if (e == nullptr) return;
  switch (e->c.state) {
    case State::kReqSent:
      if (m.reason == Reason::kInvalidServiceId && !refused(*e)) break;
      [[fallthrough]];
    case State::kReqReceived:
    case State::kRepSent:
    case State::kRepReceived:
      post(*e, Event::Type::kRejected, m);
      finish(*e, State::kIdle, now);
      break;
    case State::kEstablished:  // the peer refused our RTU, or knows nothing of us any more
    case State::kDreqSent:
      post(*e, Event::Type::kDisconnected);
      timewait(*e, now);
      break;
    default: break;
  }
}

void Manager::handle(const Datagram& d, std::uint64_t transaction, const Rep& m, Time) {
  Entry* e = entry(m.remote_id);
  if (e == nullptr || e->forgotten) {
    Rej rej;
    rej.local_id = m.remote_id;
    rej.remote_id = m.local_id;
    rej.message = Answered::kRep;
    rej.reason = e == nullptr ? Reason::kInvalidCommId : Reason::kConsumer;
    return answer(d, transaction, rej);
  }
  Connection& c = e->c;
  switch (c.state) {
    case State::kReqSent:
      set_deadline(*e, kNever);
      c.state = State::kRepReceived;
      c.remote_id = m.local_id;
      c.remote_guid = m.guid;
      c.remote_qpn = m.qpn;
      c.sq_psn = m.psn;
      c.responder_resources = m.initiator_depth;
      c.initiator_depth = m.responder_resources;
      c.rnr_retry = m.rnr_retry;
      post(*e, Event::Type::kReply, m);
      break;
    case State::kRepReceived:
      emit(*e, Mra{c.local_id, c.remote_id, Answered::kRep, kServiceTimeout, {}});
      break;
    case State::kEstablished:
    case State::kAnswered: repeat(*e); break;  // the RTU or REJ was lost
    default: break;
  }
}

void Manager::handle(const Datagram&, std::uint64_t, const Rtu& m, Time) {
  notify(m.remote_id);
}

void Manager::handle(const Datagram& d, std::uint64_t transaction, const Dreq& m, Time now) {
  Entry* e = entry(m.remote_id);
  const bool known = e != nullptr && e->c.remote_id == m.local_id && !is_over(e->c.state);
  if (!known) return answer(d, transaction, Drep{m.remote_id, m.local_id, {}});
  switch (e->c.state) {
    case State::kRepSent:
    case State::kEstablished:
      set_deadline(*e, kNever);
      e->c.state = State::kDreqReceived;
      e->transaction_id = transaction;
      post(*e, Event::Type::kDisconnected);
      if (e->forgotten) disconnect(m.remote_id, now);
      break;
    case State::kDreqSent:  // both ends disconnect at once
      answer(d, transaction, Drep{m.remote_id, m.local_id, {}});
      post(*e, Event::Type::kDisconnected);
      timewait(*e, now);
      break;
    case State::kDreqReceived:  // our program takes long, and its peer may wait for the answer
    case State::kTimewait: answer(d, transaction, Drep{m.remote_id, m.local_id, {}}); break;
    default: break;
  }
}

void Manager::handle(const Datagram&, std::uint64_t, const Drep& m, Time now) {
  Entry* e = entry(m.remote_id);
  if (e == nullptr || e->c.state != State::kDreqSent) return;
  post(*e, Event::Type::kDisconnected);
  timewait(*e, now);
}

void Manager::handle(const Datagram& d, std::uint64_t transaction, const SidrReq& m, Time) {
  for (auto& [id, e] : entries_) {
    if (!e.c.passive || e.c.remote_id != m.request_id || e.c.to != d.from ||
        e.transaction_id != transaction) {
      continue;
    }
    if (e.c.state == State::kAnswered) repeat(e);
    return;
  }
  const auto refuse = [&](SidrStatus status) {
    SidrRep rep;
    rep.request_id = m.request_id;
    rep.status = status;
    rep.service_id = m.service_id;
    answer(d, transaction, rep);
  };
  if (!accepts_ || !accepts_(m.service_id, d.to)) return refuse(SidrStatus::kUnsupported);
  CommId id = 0;
  Entry* e = make(&id);
  if (e == nullptr) return refuse(SidrStatus::kRejected);
  e->transaction_id = transaction;
  e->c.state = State::kSidrReqReceived;
  e->c.passive = true;
  e->c.remote_id = m.request_id;
  e->c.service_id = m.service_id;
  e->c.from = d.to;
  e->c.to = d.from;
  post(*e, Event::Type::kSidrRequest, m);
}

void Manager::handle(const Datagram& d, std::uint64_t, const SidrRep& m, Time now) {
  Entry* e = entry(m.request_id);
  if (e == nullptr || e->c.state != State::kSidrReqSent) return;
  if (m.status == SidrStatus::kRedirect && redirect(*e, d, m.info, now)) return;
  if (m.status == SidrStatus::kUnsupported && !refused(*e)) return;
  post(*e, Event::Type::kSidrReply, m);
  finish(*e, State::kIdle, now);
}

}  // namespace ferry::cm
