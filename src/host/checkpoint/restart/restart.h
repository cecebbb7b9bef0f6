#pragma once

#include <string>

#include "host/checkpoint/restart/serve.h"
#include "host/peers/messages.h"
#include "store/checkpoint.h"

namespace ferry::host {

class Arrivals;
class Attempt;
class Directory;

// Restores all programs of the checkpoint, which is in the store `directory`, and lets them go on together: here, and
// on other hosts by their ferryds. `places`: where they may have gone on before. `attempt`: can be given up until all
// are restored. Throws Failure: then none of them runs, unless the line says otherwise. The files that were cut back
// stay so; what was behind is in FILE.ferry-ID.
v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals, Directory& places,
                                   const BeginRestart& begin, const std::string& directory,
                                   store::Checkpoint checkpoint, const v1::RestartRequest& request,
                                   Attempt& attempt);

}  // namespace ferry::host
