#pragma once

#include <atomic>
#include <string>

#include "base/limits.h"
#include "host/control/control_server.h"
#include "host/image/image_room.h"
#include "host/image/image_stream.h"
#include "host/journal/decision_log.h"
#include "host/proc/process_ids.h"
#include "host/standin/stand_in_host.h"
#include "host/units/criu_runner.h"
#include "host/units/dump_turn.h"
#include "host/units/units.h"

namespace ferry::host {

class Credentials;
class Departed;
class Directory;
class Residents;
class Whereabouts;

// What moves and arrivals share on this host. The objects are the daemon's.
struct Host {
  std::string name;     // as users call it
  std::string address;  // address:port of this ferryd
  std::string version;
  std::string state_directory;    // survives a restart
  std::string podman = "podman";  // the command
  std::string rootfs_helper;      // ferry-rootfs
  Limits limits;
  const Units* units = nullptr;
  const Credentials* credentials = nullptr;  // none: nothing is checked (--insecure)
  ControlServer* control = nullptr;
  StandInHost* stand_ins = nullptr;
  DecisionLog* decisions = nullptr;
  const ImageRoom* room = nullptr;
  ImageReceiver* images = nullptr;  // none: no other host can be reached
  CriuRunner* criu = nullptr;
  Directory* directory = nullptr;
  const Departed* departed = nullptr;
  Residents* residents = nullptr;
  Whereabouts* whereabouts = nullptr;
  DumpTurns dump_turns;
  IsTaken is_taken = is_taken_here;  // process ids
  std::atomic<bool> stopping{false};
};

}  // namespace ferry::host
