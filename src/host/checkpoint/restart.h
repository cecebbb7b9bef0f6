#pragma once

#include <string>
#include <vector>

#include "host/checkpoint/facts.h"
#include "host/peers/messages.h"
#include "store/checkpoint.h"

namespace ferry::host {

class Arrivals;
struct ThisHost;

// What of a program `facts` says still runs on this host, in words; empty: nothing.
std::string what_runs(const Facts& facts, const Arrivals& arrivals);

// Restores all programs of the checkpoint as arrivals of one group, and lets them go on together. Throws Failure:
// then none of them runs. The files that were cut back stay so; what was behind is in FILE.ferry-ID.
v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals,
                                   const store::Checkpoint& checkpoint,
                                   const std::vector<Facts>& programs);

}  // namespace ferry::host
