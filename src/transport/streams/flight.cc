#include "transport/streams/flight.h"

#include "transport/timers.h"

namespace ferry::transport {
namespace {

// A loss that a NAK reports never reduces the window below this many packets. Bad wires lose
// packets one by one: with a smaller window the requester would mostly wait for acknowledgements,
// and the lost packet would more often be the last of the window, which nothing reports.
constexpr unsigned kFewestAfterNak = 8;

// The bytes with which the packets of the WQE at the PSNs [begin, end) were accounted.
std::int64_t cost_of(const Wqe& wqe, std::uint64_t begin, std::uint64_t end, std::uint32_t mtu) {
  if (begin >= end) return 0;
  const std::uint64_t from = std::min((begin - wqe.first_psn) * mtu, wqe.length);
  const std::uint64_t to = std::min((end - wqe.first_psn) * mtu, wqe.length);
  return static_cast<std::int64_t>(to - from + kPacketOverhead * (end - begin));
}

}  // namespace

void Flight::start(Time now) {
  SendStream::start(qp.rts.next_psn);
  window = kMaxWindow;
  rd_atomics.reserve(qp.rts.max_rd_atomic);
  progress(now);
}

void Flight::set_limits() {
  rd_atomics.reserve(qp.rts.max_rd_atomic);
  retries_left = qp.rts.retry_count;
  rnr_retries_left = qp.rts.rnr_retry;
}

void Flight::land() {
  if (in_flight != 0) qp.path.account(-in_flight);
  in_flight = 0;
}

void Flight::release(const Wqe& wqe, std::uint64_t end) {
  const std::int64_t bytes = cost_of(wqe, una, std::min(end, next), qp.rtr.mtu);
  if (bytes != 0) {
    in_flight -= bytes;
    qp.path.account(-bytes);
    const std::int64_t growth = window < threshold ? bytes : qp.packet_cost() * bytes / window;
    window = std::min(window + growth, kMaxWindow);
  }
  una = end;
  if (next >= end) return;
  next = end;  // acknowledged before it was sent again
  cursor = end == wqe.end_psn() ? queue.head() + 1 : queue.head();
  skip_local();
}

void Flight::progress(Time now) {
  retries_left = qp.rts.retry_count;
  rnr_retries_left = qp.rts.rnr_retry;
  ack_at = una < probe.asked_end ? ack_deadline(now) : kNever;
  probe.progress(una, now);
  check_drained();
}

// Additive increase, multiplicative decrease: most losses mean that a receive buffer overflowed,
// and go-back-N into the same overflow would never end. After a timeout the window is two packets.
// A further loss of the same flight leaves the threshold alone (RFC 5681, section 3.1): half of the
// two packets after the first timeout, it would make the window take minutes to grow again.
void Flight::loss(bool timeout) {
  const bool same_flight = una < recover;
  if (same_flight && !timeout) return;
  recover = max_sent;
  if (!same_flight) {
    threshold = std::max(std::min(in_flight, window) / 2, kFewestAfterNak * qp.packet_cost());
  }
  window = timeout ? 2 * qp.packet_cost() : std::min(window, threshold);
}

void Flight::go_back() {
  land();
  rewind();
  rd_atomics.clear();
  implied_nak_at = una;
  since_ack_request = 0;
  ack_at = kNever;
  probe.cancel();
}

void Flight::cancel() {
  if (!qp.requesting()) return;
  go_back();
  rnr_until = kNever;
  retries_left = qp.rts.retry_count;
  rnr_retries_left = qp.rts.rnr_retry;
}

void Flight::give_up() {
  land();
  rd_atomics.clear();
  ack_at = rnr_until = kNever;
  probe.cancel();
}

Time Flight::ack_deadline(Time now) const {
  return deadline(now, ack_timeout(qp.rts.timeout, qp.rts.retry_count - retries_left));
}

// Something waits for an acknowledgement: if the peer was not asked for it, a probe asks now.
void Flight::ask_now() {
  if (is_unasked()) probe.due = true;
}

}  // namespace ferry::transport
