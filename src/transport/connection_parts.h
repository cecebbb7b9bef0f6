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

// The parts of a Connection, and who knows whom.
namespace ferry::transport {

struct ReliableParts {  // RC, XRC
  ReliableParts(QpAttributes& qp, MigrationTimers& timers, SendQueue queue, ReceiveRequest receive)
      : flight(qp, std::move(queue)),
        receives(qp, std::move(receive)),
        responses(receives),
        errors(flight, receives, responses, timers),
        requester(flight, errors),
        completer(flight, errors),
        responder(receives, responses, errors) {}

  Flight flight;
  ReceiveStream receives;
  Responses responses;
  ErrorState errors;
  Requester requester;
  Completer completer;
  Responder responder;
};

struct UcParts {
  UcParts(QpAttributes& qp, MigrationTimers& timers, SendQueue queue, ReceiveRequest receive)
      : sends(qp, std::move(queue)),
        receives(qp, std::move(receive)),
        errors(sends, receives, timers),
        requester(sends),
        responder(receives, errors) {}

  SendStream sends;
  ReceiveStream receives;
  ErrorState errors;
  UcRequester requester;
  UcResponder responder;
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
  // A packet of the transport, not of the migration protocol, with the opcode of RC.
  void handle_transport(const wire::Packet& packet, Time now);

  // Everything of this incarnation but the queue's storage, the Stopped flag and the counters.
  void forget();
  void save(wire::ByteWriter& out);
  bool load(wire::ByteReader& in);
};

}  // namespace ferry::transport
