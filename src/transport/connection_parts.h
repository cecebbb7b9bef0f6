#pragma once

#include <variant>

#include "transport/completer.h"
#include "transport/connection.h"
#include "transport/error_state.h"
#include "transport/flight.h"
#include "transport/migration.h"
#include "transport/migration_timers.h"
#include "transport/qp_attributes.h"
#include "transport/receive_stream.h"
#include "transport/requester.h"
#include "transport/responder.h"
#include "transport/responses.h"
#include "transport/send_stream.h"
#include "transport/streams.h"
#include "transport/uc_requester.h"
#include "transport/uc_responder.h"
#include "wire/bytes.h"

// The parts of a Connection, and who knows whom. What has no state of its own (requester, completer,
// responder, migration) is made for each call: its references would cost each of thousands of idle
// QPs more memory than it takes to make it.
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

  // Null of another service.
  ReliableParts* reliable() { return std::get_if<ReliableParts>(&service); }
  UcParts* uc() { return std::get_if<UcParts>(&service); }
  SendStream& sends() { return reliable() ? reliable()->flight : uc()->sends; }
  ReceiveStream& receives() { return reliable() ? reliable()->receives : uc()->receives; }
  ErrorState& errors() { return reliable() ? reliable()->errors : uc()->errors; }
  Migration migration();
  // Apart from the functions of the data path, whose registers they would take.
  [[gnu::cold]] unsigned transmit_migration();
  [[gnu::cold]] void handle_migration(const wire::Packet& packet, const port::Endpoint& from,
                                      Time now);
  [[gnu::cold]] void answer_while_we_are_stopped(const wire::Packet& packet,
                                                 const port::Endpoint& from);
  // Of what waits while the QP or its peer is stopped; kNever while it is itself.
  [[gnu::cold]] Time migration_deadline();

  // Everything of this incarnation but the queue's storage, the Stopped flag and the counters.
  void forget();
  void save(wire::ByteWriter& out);
  bool load(wire::ByteReader& in);
};

}  // namespace ferry::transport
