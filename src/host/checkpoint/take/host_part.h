#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/checkpoint/take/connections.h"
#include "store/content_key.h"
#include "store/manifest.h"

namespace ferry::host {

// The programs of this host in a checkpoint. The steps come in the order of their declaration; with `stop`, which the
// constructors get, end() comes after store(). All throw Failure. When this is destroyed or given up before end(), the
// programs go on as if nothing had been, once the step that is under way has ended.
class HostPart {
 public:
  virtual ~HostPart() = default;

  // Looks at the programs, and at the place of their images, the first one under the number `first`, in the checkpoint
  // `id` that NewCheckpoint has begun in the store `directory`; `key`: of an encrypted one.
  virtual std::vector<Connection> look(const std::string& directory, const std::string& id,
                                       std::uint32_t first,
                                       const std::optional<store::ContentKey>& key) = 0;
  // Nothing is in the way of the stop.
  virtual void check() = 0;
  // All programs stand still, and none is dumped.
  virtual void freeze() = 0;
  // The images of all are complete, in memory.
  virtual void dump() = 0;
  // The programs go on, or end if they are to. Gives their standstill in milliseconds.
  virtual double end() = 0;
  // Writes the images into the checkpoint.
  virtual std::vector<store::Program> store() = 0;

  // Ends the step that is under way in another thread, which throws, but for look(), which ends by itself; no others
  // follow.
  virtual void give_up() = 0;
};

}  // namespace ferry::host
