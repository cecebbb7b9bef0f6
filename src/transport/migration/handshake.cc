#include "transport/migration/handshake.h"

#include "port/slot.h"

namespace ferry::transport {
namespace {

using wire::MigrationType;

// After so many HELLOs without an answer (15 ms) we send to the peer as to a standard NIC. One of
// our kind that is only late is reached at UDP port 4791, too.
constexpr unsigned kHellosToStandardNic = 4;

}  // namespace

void Handshake::draw_cookie() {
  do {
    cookies_.own = qp_.path.host.random();
  } while (cookies_.own == 0);
}

void Handshake::start(Time now) {
  if (!qp_.speaks() || qp_.migration.stopped || qp_.settings.hello_repeats == 0) return;
  qp_.migration.due |= kDueHello;
  repeats_left_ = qp_.settings.hello_repeats - 1;
  timers_.hello.start(now, qp_.settings.hello_first);
  timers_.hello.again(now, qp_.settings.hello_last);
}

void Handshake::start_at_once() {
  timers_.hello = {Time::min(), qp_.settings.hello_first};
  repeats_left_ = qp_.settings.hello_repeats;
}

void Handshake::ask_again(Time now) {
  if (qp_.path.ferry() || !qp_.speaks() || qp_.migration.stopped) return;
  if (timers_.hello.at != kNever) {
    qp_.migration.due |= kDueHello;  // it is being asked: one more HELLO, no new back-off
    return;
  }
  qp_.path.peer_class = PeerClass::kUnknown;
  start(now);
}

void Handshake::timeout(Time now) {
  if (timers_.hello.at > now) return;
  if (repeats_left_ == 0) {
    timers_.hello.stop();
    qp_.path.presumed_standard = true;
    if (qp_.path.peer_class == PeerClass::kUnknown) qp_.path.peer_class = PeerClass::kUnmodified;
    return;
  }
  --repeats_left_;
  qp_.migration.due |= kDueHello;
  qp_.count_unanswered();
  timers_.hello.again(now, qp_.settings.hello_last);
  const unsigned repeats = qp_.settings.hello_repeats - 1 - repeats_left_;
  if (repeats >= kHellosToStandardNic) qp_.path.presumed_standard = true;
}

// The QPN that our program was given for the peer may be a wire QPN, with the slot of the place
// where the peer was then (rdma_cm.md). The index of a QPN never changes.
bool Handshake::is_peer(std::uint32_t source_qpn) const {
  return source_qpn == qp_.rtr.peer_qpn ||
         (!qp_.path.ferry() && port::index_of(source_qpn) == port::index_of(qp_.rtr.peer_qpn));
}

bool Handshake::learn(std::uint64_t cookie) {
  if (cookie == 0) return false;
  if (qp_.path.ferry()) return cookie == cookies_.peer;
  cookies_.peer = cookie;
  qp_.path.peer_class = PeerClass::kFerry;
  timers_.hello.stop();
  qp_.migration.due &= ~kDueHello;
  return true;
}

bool Handshake::handle(const wire::MigrationMessage& message, const port::Endpoint& from) {
  if (from != qp_.path.peer || !is_peer(message.source_qpn)) return false;
  const bool echoed = message.echo == cookies_.own;
  if (message.type != MigrationType::kHello && !echoed) return false;
  if (echoed && !learn(message.cookie)) return false;
  if (echoed) qp_.rtr.peer_qpn = message.source_qpn;  // its virtual QPN, which MACs cover
  qp_.path.unanswered = 0;
  if (message.type == MigrationType::kHello) {
    qp_.migration.due |= kDueHelloAck;
    echo_ = message.cookie;
    // The peer probes, so it has not heard our RESUME.
    if (qp_.migration.resume_pending) qp_.migration.due |= kDueResume;
  } else if (message.type == MigrationType::kHelloAck) {
    qp_.migration.due |= kDueHelloDone;
  }
  return true;
}

void Handshake::forget() {
  cookies_ = {};
  echo_ = 0;
  repeats_left_ = 0;
}

void Handshake::save(Saver& out) const {
  out.value(cookies_.own);
  out.value(cookies_.peer);
}

void Handshake::load(Loader& in) {
  in.value(cookies_.own);
  in.value(cookies_.peer);
  in.require(qp_.path.peer_class != PeerClass::kFerry || cookies_.peer != 0);
  in.require(!qp_.receiving() || cookies_.own != 0);
}

}  // namespace ferry::transport
