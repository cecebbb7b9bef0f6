#pragma once

#include <atomic>
#include <string>

#include "base/limits.h"
#include "host/control/control_server.h"
#include "host/image/image_stream.h"
#include "host/journal/decision_log.h"
#include "host/proc/process_ids.h"
#include "host/standin/stand_in_host.h"
#include "host/units/criu_runner.h"
#include "host/units/dump_turn.h"
#include "host/units/runtimes.h"

namespace ferry::host {

class Credentials;
class Directory;
class Origins;
class Residents;
class Whereabouts;

// What moves and arrivals share on this host. The objects are the daemon's.
struct Host {
  std::string name;     // as users call it
  std::string address;  // address:port of this ferryd
  std::string version;
  std::string image_directory;     // on a tmpfs
  std::string state_directory;     // survives a restart
  std::string podman = "podman";   // the command
  std::string rootfs_helper;       // ferry-rootfs
  std::uint64_t memory_limit = 0;  // bytes that one arriving program may take; 0: what is free
  Limits limits;
  const Runtimes* runtimes = nullptr;
  const Credentials* credentials = nullptr;  // none: nothing is checked (--insecure)
  ControlServer* control = nullptr;
  StandInHost* stand_ins = nullptr;
  DecisionLog* decisions = nullptr;
  ImageReceiver* images = nullptr;  // none: no other host can be reached
  CriuRunner* criu = nullptr;
  Directory* directory = nullptr;
  Origins* origins = nullptr;
  Residents* residents = nullptr;
  Whereabouts* whereabouts = nullptr;
  DumpTurns dump_turns;
  IsTaken is_taken = is_taken_here;  // process ids
  std::atomic<bool> stopping{false};

  // Bytes that an arriving program may take.
  std::uint64_t available() const;
  std::string images_of(std::uint64_t move_id) const;
  // Throws Failure unless images of so many bytes find room.
  void need_room_for_images(std::uint64_t bytes) const;
};

inline constexpr std::uint64_t kHeadroom = 64ull << 20;  // bytes that stay free beside what arrives
inline constexpr char kContainerLog[] =
    "container.log";  // of the image: what the container has written so far

}  // namespace ferry::host
