#pragma once

#include <mutex>
#include <vector>

#include "pipe/engine/engine.h"

namespace ferry::pipe {

// Copies in submit(), in the thread that calls: the driver's threads are its copying threads, and no
// entry is handed from one to another on its way.
class SoftwareEngine : public Engine {
 public:
  SoftwareEngine();

  const char* name() const override { return "software"; }
  std::uint32_t longest() const override { return kLongestEntry; }
  std::size_t submit(std::span<const Entry> entries) override;
  std::size_t reap(std::span<Entry> done) override;
  int descriptor() const override { return -1; }

 private:
  std::mutex mutex_;
  std::vector<Entry> done_;
};

}  // namespace ferry::pipe
