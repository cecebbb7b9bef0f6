#pragma once

#include <cstdint>
#include <memory>

#include "port/endpoint.h"
#include "transport/migration/handshake.h"
#include "transport/migration/migration_sender.h"
#include "transport/migration/own_end.h"
#include "transport/migration/resumption.h"
#include "transport/migration_timers.h"
#include "transport/stopped.h"
#include "transport/streams/error_state.h"
#include "transport/streams/qp_attributes.h"
#include "transport/streams/streams.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The state that a QP keeps between calls of Migration.
struct MigrationMemory {
  MigrationMemory(QpAttributes& qp, MigrationTimers& timers) : handshake(qp, timers) {}

  Handshake handshake;
  Epochs epochs;
  std::unique_ptr<ControlPacket> stopped_answer;  // to be sent while we are Stopped; null: none yet

  void forget();
};

// The migration protocol (docs/wire.md, "Migration"; TardiS section 3.4): PAUSE, NAK_STOPPED,
// MOVED; the states Stopped and Paused.
//
// Silence: a QP that is Stopped, Paused or waits for its RESUME_ACK sends no requests,
// acknowledgements or READ responses. The peer would drop them (it does not know our address yet)
// or cannot hear them. A QP that is not Stopped itself still receives: packets from the peer's
// current address were sent before the stop and are true.
//
// A Migration is made for each call: most QPs never migrate, and its references would cost each of
// thousands of QPs more memory than its epochs do.
class Migration {
 public:
  Migration(QpAttributes& qp, MigrationTimers& timers, MigrationMemory& memory,
            const Streams& streams, ErrorState& errors)
      : qp_(qp),
        timers_(timers),
        handshake_(memory.handshake),
        epochs_(memory.epochs),
        streams_(streams),
        errors_(errors),
        own_end_(qp, handshake_, epochs_, streams.sends(), streams.receives()),
        sender_(qp, own_end_, memory.stopped_answer),
        resumption_(qp, timers, epochs_, own_end_, streams_) {}
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  MigrationSender& sender() { return sender_; }
  const OwnEnd& own_end() const { return own_end_; }

  // False: the message is not from the peer, too old, or impossible; it counts as forged.
  bool handle(const wire::Packet& packet, const port::Endpoint& from, Time now);
  void timeout(Time now);
  // Enters Stopped, with the next epoch. True: a ferry peer is to be told.
  bool enter_stopped();
  // Goes on at another place or on another path, with the next epoch if it `counts`; a ferry peer
  // gets RESUME first.
  void go_on(bool counts, Time now);
  // Takes another path to the same peer.
  void set_path(const port::Endpoint& peer, std::uint32_t wire_qpn, Time now);
  // The directory tells that the RNIC `name` is at `location`, after `epoch` stops.
  void located(const port::Endpoint& name, const port::Endpoint& location, std::uint32_t epoch,
               Time now);

  void save(Saver& out) const;
  void load(Loader& in);
  // After load(): makes handshake, probes and RESUME start with the next timeout().
  void start_at_once();

 private:
  // Handles PAUSE, NAK_STOPPED and MOVED: the peer is stopped.
  bool handle_peer_stop(const wire::MigrationMessage& message, Time now);
  bool handle_redirect(const wire::MigrationMessage& message, const port::Endpoint& from, Time now);
  void relocate(const port::Endpoint& location, std::uint32_t qpn, Time now);
  void pause(Time now);
  void limit_reached();

  QpAttributes& qp_;
  MigrationTimers& timers_;
  Handshake& handshake_;
  Epochs& epochs_;
  Streams streams_;
  ErrorState& errors_;
  OwnEnd own_end_;
  MigrationSender sender_;
  Resumption resumption_;
};

}  // namespace ferry::transport
