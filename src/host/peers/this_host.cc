#include "host/peers/this_host.h"

#include <fmt/core.h>

#include "base/failure.h"

namespace ferry::host {

void need_to_stay(const ThisHost& host) {
  if (host.stopping) throw Failure("this ferryd is ending");
}

void need_other_hosts(const ThisHost& host) {
  if (!host.address.empty()) return;
  throw Failure(fmt::format(
      "the ferryd of {} serves this host only: it has no certificates; make them (ferry "
      "ca init, ferry host add) and start it anew",
      host.name));
}

}  // namespace ferry::host
