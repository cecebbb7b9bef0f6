#pragma once

#include <vector>

#include "host/checkpoint/take/cut_host.h"
#include "host/peers/messages.h"

namespace ferry::host {

class Attempt;
class ContentKeys;
struct ThisHost;

// Takes a checkpoint of the programs of all hosts, at one moment, and puts it into the store, encrypted if the request
// has recipients. `attempt`: can be given up until all images are in the store. Throws Failure: then all programs go
// on, and the store has what it had, unless the line says otherwise.
v1::CheckpointReport take_checkpoint(const ThisHost& host, std::vector<CutHost> hosts,
                                     const v1::CheckpointRequest& request, ContentKeys& keys,
                                     Attempt& attempt);

}  // namespace ferry::host
