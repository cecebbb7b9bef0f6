#pragma once

#include <cstdint>

#include "port/endpoint.h"
#include "transport/migration/own_end.h"
#include "transport/migration_timers.h"
#include "transport/streams/qp_attributes.h"
#include "transport/streams/streams.h"
#include "transport/types.h"
#include "wire/migration.h"

namespace ferry::transport {

// RESUME and RESUME_ACK, ours and the peer's: each side goes on from where the other is.
class Resumption {
 public:
  Resumption(QpAttributes& qp, MigrationTimers& timers, Epochs& epochs, const OwnEnd& own_end,
             Streams& streams)
      : qp_(qp), timers_(timers), epochs_(epochs), own_end_(own_end), streams_(streams) {}

  // Begins to tell a ferry peer, by RESUME, that we are at another place.
  void announce(Time now);
  // Sends our RESUME once more, and repeats it from the first interval on.
  void repeat_from_now(Time now);
  void timeout(Time now);
  // False: the message is impossible, or of a stop that is over.
  bool handle_resume(const wire::MigrationMessage& message, Time now);
  bool handle_resume_ack(const wire::MigrationMessage& message, Time now);

 private:
  QpAttributes& qp_;
  MigrationTimers& timers_;
  Epochs& epochs_;
  const OwnEnd& own_end_;
  Streams& streams_;
};

}  // namespace ferry::transport
