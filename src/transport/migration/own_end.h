#pragma once

#include <cstdint>

#include "transport/migration/handshake.h"
#include "transport/stopped.h"
#include "transport/streams/qp_attributes.h"
#include "transport/streams/receive_stream.h"
#include "transport/streams/send_stream.h"
#include "wire/migration.h"

namespace ferry::transport {

// The stops of both ends that are known, and whether they are over.
struct Epochs {
  std::uint32_t own = 0;     // of our last stop
  std::uint32_t peer = 0;    // of the peer's last stop that we know of
  bool peer_resumed = true;  // the peer has resumed from that stop
  bool located = false;      // RESUME or MOVED has told where the peer is, since our own RESUME

  // The peer's RNIC had at least this many stops before the first stop of the peer's QP. Directory
  // and stand-ins of a slot count the RNIC's stops: what they tell is old if its epoch is below
  // `place` + `peer`.
  std::uint32_t place = 0;
};

// Our end of the connection, as migration messages tell it to the peer.
class OwnEnd {
 public:
  OwnEnd(const QpAttributes& qp, const Handshake& handshake, const Epochs& epochs,
         const SendStream& sends, const ReceiveStream& receives)
      : qp_(qp), handshake_(handshake), epochs_(epochs), sends_(sends), receives_(receives) {}

  StoppedEnd description() const;
  wire::MigrationMessage message(wire::MigrationType type) const;

 private:
  const QpAttributes& qp_;
  const Handshake& handshake_;
  const Epochs& epochs_;
  const SendStream& sends_;
  const ReceiveStream& receives_;
};

}  // namespace ferry::transport
