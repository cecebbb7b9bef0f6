#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/step_bytes.h"
#include "host/checkpoint/take/host_part.h"
#include "host/peers/messages.h"
#include "host/peers/served.h"

namespace ferry::host {

struct ThisHost;

// Gives the part of these programs, which tells how far it is.
using BeginCut = std::function<std::unique_ptr<HostPart>(const std::vector<std::string>& programs,
                                                         bool stop, TellBytes tell)>;

// Carries out here what the ferryd that takes a checkpoint, this one or another host's, asks for step by step
// (ferry.proto). Returns when the conversation has ended; what the steps have begun by then is given up, unless the
// last one is done, or the programs end with the checkpoint and the store has it. Throws Failure.
void serve_cut(const BeginCut& begin, const ThisHost& host,
               Served<v1::CutStep, v1::CutReply>& steps);

}  // namespace ferry::host
