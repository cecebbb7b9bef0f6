#pragma once

#include <cstddef>
#include <span>

#include "pipe/protocol/entry.h"

namespace ferry::pipe {

// What copies. It takes entries (EntryType::kSend, with addresses of the driver's), copies
// `length_of(entry)` bytes from `source` to `destination`, and gives the entries back as kCompleted or,
// where the memory is gone, kFailed: all else in them is as it was. It knows no sockets.
//
// Entries may be given back in any order. Any thread may call.
class Engine {
 public:
  virtual ~Engine() = default;

  // The name that pd_init() gives.
  virtual const char* name() const = 0;
  // The most that an entry may copy: longer requests are split.
  virtual std::uint32_t longest() const = 0;
  // Takes the first of `entries`, and says how many. The others come again after a reap().
  virtual std::size_t submit(std::span<const Entry> entries) = 0;
  // Gives back up to `done.size()`, and says how many.
  virtual std::size_t reap(std::span<Entry> done) = 0;
  // A descriptor that is readable when there is something to reap that was not there when submit()
  // returned; -1 for engines that copy in submit() or reap().
  virtual int descriptor() const = 0;
};

}  // namespace ferry::pipe
