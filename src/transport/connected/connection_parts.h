#pragma once

#include <algorithm>
#include <utility>
#include <variant>

#include "transport/connected/connection.h"
#include "transport/connected/requester.h"
#include "transport/connected/responder.h"
#include "transport/connected/uc_requester.h"
#include "transport/connected/uc_responder.h"
#include "transport/migration/migration.h"
#include "transport/migration_timers.h"
#include "transport/streams/completer.h"
#include "transport/streams/error_state.h"
#include "transport/streams/flight.h"
#include "transport/streams/qp_attributes.h"
#include "transport/streams/receive_stream.h"
#include "transport/streams/responses.h"
#include "transport/streams/send_stream.h"
#include "transport/streams/streams.h"
#include "wire/bytes.h"

// The parts of a Connection, and who knows whom. Parts without state of their own (requester,
// completer, responder, migration) are made for each call: that costs next to nothing, while their
// references would cost each of thousands of idle QPs memory.
namespace ferry::transport {

struct ReliableParts {  // RC, XRC
  ReliableParts(QpAttributes& qp, MigrationTimers& timers, SendQueue queue, ReceiveRequest receive)
      : flight(qp, std::move(queue)),
        receives(qp, std::move(receive)),
        responses(receives),
        errors(flight, receives, responses, timers) {}

  Flight flight;
  ReceiveStream receives;
  Responses responses;
  ErrorState errors;

  Requester requester() { return Requester(flight, errors); }
  Completer completer() { return Completer(flight, errors); }
  Responder responder() { return Responder(receives, responses, errors); }
};

struct UcParts {
  UcParts(QpAttributes& qp, MigrationTimers& timers, SendQueue queue, ReceiveRequest receive)
      : sends(qp, std::move(queue)),
        receives(qp, std::move(receive)),
        errors(sends, receives, timers) {}

  SendStream sends;
  ReceiveStream receives;
  ErrorState errors;

  UcRequester requester() { return UcRequester(sends); }
  UcResponder responder() { return UcResponder(receives, errors); }
};

struct Connection::Parts {
  Parts(Host& host, const QueueLimits& limits, const MigrationSettings& settings,
        std::uint32_t virtual_qpn, std::uint32_t wire_qpn);

  QpAttributes qp;
  MigrationTimers timers;
  MigrationMemory memory;
  std::variant<ReliableParts, UcParts> service;

  // Null for a QP of another service.
  ReliableParts* reliable() { return std::get_if<ReliableParts>(&service); }
  UcParts* uc() { return std::get_if<UcParts>(&service); }
  SendStream& sends() { return reliable() ? reliable()->flight : uc()->sends; }
  ReceiveStream& receives() { return reliable() ? reliable()->receives : uc()->receives; }
  ErrorState& errors() { return reliable() ? reliable()->errors : uc()->errors; }
  Migration migration();
  // Kept out of line: inlined, these functions would take registers of the data path.
  [[gnu::cold]] unsigned transmit_migration();
  [[gnu::cold]] void handle_migration(const wire::Packet& packet, const port::Endpoint& from,
                                      Time now);
  [[gnu::cold]] void answer_while_we_are_stopped(const wire::Packet& packet,
                                                 const port::Endpoint& from);
  // Deadlines of a QP that is migrating, or whose peer is.
  [[gnu::cold]] Deadlines migration_deadlines();
  // Deadlines of all others; those of HELLO are among them.
  Deadlines transport_deadlines() {
    Deadlines at;
    if (kMovable) at.strict = std::min(timers.hello.at, timers.probe.at);
    const ReliableParts* rc = reliable();
    if (!rc || !qp.requesting()) return at;
    // std::min() of a list would be a loop, and this is called after each packet.
    at.strict = std::min(at.strict, std::min(rc->flight.ack_at, rc->flight.rnr_until));
    at.lenient = rc->flight.probe.at;
    return at;
  }

  // Forgets all of this incarnation but the queues' storage, the Stopped flag and the counters.
  void forget();
  void save(wire::ByteWriter& out);
  bool load(wire::ByteReader& in);
};

}  // namespace ferry::transport
