#pragma once

#include <vector>

#include "host/checkpoint/find/closure.h"

namespace ferry::host {

class ControlServer;
class Units;

// Answers a question for programs of this host: those that use RDMA devices of Ferry's, and others of a job or of a
// container. Throws Failure when one that is asked for cannot be in a checkpoint as it is.
std::vector<FoundProgram> programs_here(ControlServer& control, const Units& units,
                                        const Question& question);

}  // namespace ferry::host
