#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "port/endpoint.h"
#include "transport/types.h"
#include "wire/header.h"
#include "wire/migration.h"

// A stand-in answers for the QPs of a frozen or moved process (docs/wire.md, "Stopped"). It is a
// pure state machine, as Connection is; ferryd drives it with the process's sockets.
namespace ferry::transport {

// How long the peer of an entry of Transport::stand_in_entry() may remain Paused. Nothing for the
// entry of a datagram QP, and for a malformed one.
std::optional<Time> paused_limit_of(std::span<const std::byte> entry);

class StandIn {
 public:
  // Gets every packet that the stand-in sends: header and payload (already a migration payload or
  // empty).
  using Send = std::function<void(const port::Endpoint& to, const wire::Header& header,
                                  std::span<const std::byte> payload)>;
  explicit StandIn(Send send);
  ~StandIn();

  // The process had the slot `place`; its RNIC was opened at `origin` (virtual GID, UDP port of its
  // slot). From the commit on the stand-in answers also for QPs that were not stopped here: the
  // process makes them at its new place, but their names are still those of the origin. Without
  // this call it answers only for QPs that it has entries of.
  void serve_slot(const port::Endpoint& place, const port::Endpoint& origin);

  // `entry` comes from Transport::stand_in_entry(). False: it is malformed, or its wire QPN has an
  // entry already.
  bool add(std::span<const std::byte> entry, Time now);
  // Handles a packet whose ICRC was verified.
  void handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now);
  void handle_timeout(Time now);
  Time next_deadline() const;  // when handle_timeout() must be called next; kNever: not at all

  // After the commit: from now on the stand-in answers MOVED with the new location. The slot bits
  // of wire QPNs change to `new_slot`. `epoch` counts the RNIC's stops. Called again when the
  // process has moved on; a lower epoch than before has no effect.
  void committed(const port::Endpoint& new_location, std::uint32_t new_slot, std::uint32_t epoch,
                 Time now);
  // The new place reports that the peer of this virtual QPN has acknowledged its RESUME.
  void peer_knows(std::uint32_t virtual_qpn, Time now);
  // The place of a peer that is unmodified. Nothing: all peers are ferry or unknown.
  std::optional<port::Endpoint> standard_peer() const;
  // Whether some peer may be a standard NIC: it is unmodified or unknown.
  bool meets_strangers() const;
  // Whether nobody needs the stand-in any more.
  bool expired(Time now) const;

  struct Counters {
    std::uint64_t packets = 0, naks_sent = 0, rnr_naks_sent = 0, moved_sent = 0, dropped = 0;
    std::uint64_t forwarded = 0;   // datagrams
    std::uint64_t redirected = 0;  // HELLOs of connections that were made after the commit
  };
  Counters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry::transport
