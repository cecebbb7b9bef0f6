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

// What a QP keeps of its migration.
struct MigrationMemory {
  MigrationMemory(QpAttributes& qp, MigrationTimers& timers) : handshake(qp, timers) {}

  Handshake handshake;
  Epochs epochs;
  std::unique_ptr<ControlPacket> stopped_answer;  // what is to be sent while we are stopped

  void forget();
};

// The migration protocol (docs/wire.md, "Migration"; TardiS section 3.4): PAUSE, NAK_STOPPED, MOVED;
// the states Stopped and Paused.
//
// Silence: a QP that is Stopped, Paused or waits for its RESUME_ACK sends no requests,
// acknowledgements or READ responses. A peer would drop them (the address is not yet known) or
// cannot hear them. It still receives: what comes from the peer's current address was sent before
// the stop and is true.
//
// It is made for each call: most QPs never migrate, and references would cost each of thousands more
// memory than its epochs do.
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

  // False: not from the peer, too old, or impossible; it counts as forged.
  bool handle(const wire::Packet& packet, const port::Endpoint& from, Time now);
  void timeout(Time now);
  // Stopped, with the next epoch. True: and there is somebody to tell.
  bool enter_stopped();
  // We are at another place or on another path, with the next epoch if it `counts`: goes on there,
  // after RESUME to a ferry peer.
  void go_on(bool counts, Time now);
  // Another path to the same peer.
  void set_path(const port::Endpoint& peer, std::uint32_t wire_qpn, Time now);
  // A directory tells where the RNIC `name` is.
  void located(const port::Endpoint& name, const port::Endpoint& location, std::uint32_t epoch,
               Time now);

  void save(Saver& out) const;
  void load(Loader& in);
  // After load(): what waits for a time begins at the next call that brings one.
  void start_at_once();

 private:
  // The peer is stopped: PAUSE, NAK_STOPPED, MOVED.
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
