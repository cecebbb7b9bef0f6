#include "transport/connected/connection_parts.h"

#include <algorithm>
#include <utility>

#include "transport/streams/receive_record.h"
#include "transport/streams/send_record.h"

namespace ferry::transport {
namespace {

std::variant<ReliableParts, UcParts> parts_of_service(QpAttributes& qp, MigrationTimers& timers) {
  using Parts = std::variant<ReliableParts, UcParts>;
  const QueueLimits& limits = qp.limits;
  SendQueue queue(limits.max_send_wr, limits.max_send_sge, limits.max_inline);
  ReceiveRequest receive;
  receive.sges.reserve(limits.max_receive_sge);
  if (qp.is_uc()) {
    return Parts(std::in_place_type<UcParts>, qp, timers, std::move(queue), std::move(receive));
  }
  return Parts(std::in_place_type<ReliableParts>, qp, timers, std::move(queue), std::move(receive));
}

}  // namespace

Connection::Parts::Parts(Host& host, const QueueLimits& limits, const MigrationSettings& settings,
                         std::uint32_t virtual_qpn, std::uint32_t wire_qpn)
    : qp(host, limits, settings, virtual_qpn, wire_qpn),
      memory(qp, timers),
      service(parts_of_service(qp, timers)) {}

Migration Connection::Parts::migration() {
  ReliableParts* rc = reliable();
  return Migration(qp, timers, memory,
                   rc ? Streams(rc->flight, rc->receives, rc->responses, rc->errors)
                      : Streams(sends(), receives()),
                   errors());
}

unsigned Connection::Parts::transmit_migration() {
  return migration().sender().transmit();
}

void Connection::Parts::handle_migration(const wire::Packet& packet, const port::Endpoint& from,
                                         Time now) {
  if (!qp.settings.enabled || migration().handle(packet, from, now)) return;
  ++qp.path.counters.dropped_forged;
}

void Connection::Parts::answer_while_we_are_stopped(const wire::Packet& packet,
                                                    const port::Endpoint& from) {
  migration().sender().answer_while_we_are_stopped(packet, from);
}

Deadlines Connection::Parts::migration_deadlines() {
  if (qp.migration.stopped) return {};
  Deadlines at = transport_deadlines();
  at.strict = std::min(at.strict, timers.resume.at);
  if (qp.requesting() && sends().is_waited_for()) at.strict = std::min(at.strict, timers.limit_at);
  return at;
}

void Connection::Parts::forget() {
  SendQueue queue = std::move(sends().queue);
  queue.clear();
  ReceiveRequest receive = std::move(receives().receive);
  if (reliable()) {
    service.emplace<ReliableParts>(qp, timers, std::move(queue), std::move(receive));
  } else {
    service.emplace<UcParts>(qp, timers, std::move(queue), std::move(receive));
  }
  timers = {};
  memory.forget();
  qp.migration = {.stopped = qp.migration.stopped};
  qp.path.forget();
}

void Connection::Parts::save(wire::ByteWriter& out) {
  Saver a(out);
  qp.save(a);
  migration().save(a);
  const ReliableParts* rc = reliable();
  const SendCredits no_credits;
  save_sends(sends(), rc ? rc->flight.credits : no_credits, a);
  const ResponsesDue nothing_due;
  save_receives(receives(), rc ? rc->responses : nothing_due, a);
}

bool Connection::Parts::load(wire::ByteReader& in) {
  Loader a(in);
  qp.load(a);
  migration().load(a);
  ReliableParts* rc = reliable();
  SendCredits no_credits;
  load_sends(sends(), rc ? rc->flight.credits : no_credits, a);
  a.require(qp.requesting() || sends().queue.empty());
  ResponsesDue nothing_due;
  load_receives(receives(), rc ? rc->responses : nothing_due, a);
  if (!a.ok()) {
    forget();
    qp.qp_state = QpState::kReset;
    return false;
  }
  sends().skip_local();
  if (rc) {
    rc->flight.window = kMaxWindow;
    rc->flight.set_limits();
  }
  migration().start_at_once();
  return true;
}

}  // namespace ferry::transport
