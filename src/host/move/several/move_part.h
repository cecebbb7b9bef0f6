#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/move/source/group/others.h"
#include "host/peers/messages.h"

namespace ferry::host {

// The programs of one host in a move of programs of several hosts: here (LocalMovePart), or by another host's ferryd
// (RemoteMovePart). The steps come in the order of their declaration, each when those of all hosts have done the one
// before. All throw Failure, NotMoved when the programs run where they were. When this is destroyed or given up before
// finish(), they do so, once the step that is under way has ended.
class MovePart {
 public:
  struct Look {
    std::string host;                     // its name
    std::vector<std::string> programs;    // their names; none: no program of the job can move
    std::vector<std::uint64_t> move_ids;  // of these
    Weight weight;
  };

  virtual ~MovePart() = default;

  // Which programs are there, and may move.
  virtual Look look() = 0;
  // In place of what follows: looks only whether they could move.
  virtual v1::GroupPlan plan(const Others& others) = 0;
  // Nothing is in the way, here and at the destination.
  virtual void check(const Others& others) = 0;
  // The destination has made room.
  virtual void prepare() = 0;
  // What can be copied while the programs run is copied.
  virtual void copy() = 0;
  // The peers of the programs over devices of the kernel are suspended.
  virtual void suspend() = 0;
  // The rest of the move. From now on nobody leads it any more: this host and the destination settle how it ends.
  virtual v1::GroupReport finish() = 0;
  // Ends finish() in another thread, which throws. The move goes on.
  virtual void stop_waiting() = 0;

  // In place of the next step, when that of another host has failed: returns when all programs run where they were.
  virtual void end() = 0;
  // Ends the step that is under way in another thread, which throws; no others follow but end(). Without effect on what
  // is promised.
  virtual void give_up() = 0;
};

}  // namespace ferry::host
