#pragma once

#include <string>

#include "host/move/destination/arrival.h"
#include "host/peers/messages.h"

namespace ferry::host {

class Arrivals;
class Directory;
struct ThisHost;

// What becomes of programs that a restart has put on this host, for whoever waits for them here or on another host.
class Restarted {
 public:
  Restarted(const ThisHost& host, const Arrivals& arrivals, const Directory& directory)
      : host_(host), arrivals_(arrivals), directory_(directory) {}

  // Signals the programs that the request means, if it has a signal, and tells of each whether it has ended. A program
  // has ended when all processes have that it had at the restart, or when it has moved on. One that is not known has
  // ended: the journal knows those that run also after a restart of ferryd.
  v1::RestartedReply answer(const v1::RestartedRequest& request) const;

 private:
  void answer(const Ending& ending, int signal, v1::RestartedReply* reply) const;
  std::string moved_to(const Ending& ending) const;

  const ThisHost& host_;
  const Arrivals& arrivals_;
  const Directory& directory_;
};

}  // namespace ferry::host
