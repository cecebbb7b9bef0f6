#pragma once

#include <functional>
#include <memory>
#include <string>

#include "host/checkpoint/restart/host_restart.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/messages.h"
#include "host/peers/served.h"

namespace ferry::host {

struct ThisHost;

// Gives the restart of the programs that CHECK names, which tells how far it is.
using BeginRestart =
    std::function<std::unique_ptr<HostRestart>(const v1::RestartStep& check, TellBytes tell)>;
// What the steps of a restart need.
struct RestartSteps {
  std::function<std::string(const v1::RestartStep& look)> look;  // what runs; empty: nothing
  BeginRestart begin;
};

// Carries out here what the ferryd that restarts a checkpoint, this one or another host's, asks for step by step, as
// serve_cut() does. When the conversation ends after RESTORE, the programs go on if the store says so.
void serve_restart(const RestartSteps& begin, const ThisHost& host,
                   Served<v1::RestartStep, v1::RestartStepReply>& steps);

}  // namespace ferry::host
