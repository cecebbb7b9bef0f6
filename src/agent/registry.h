#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "device/movable.h"

// The contexts of this process that a move takes along. verbs/ adds and removes them; the agent
// walks them.
namespace ferry::agent {

// Something else of the process that a move cannot take along as it is: rdma_cm. It stops before the contexts (after
// MovableContext::prepare()) and resumes after them.
class Companion {
 public:
  virtual ~Companion() = default;
  // Sends nothing any more. 0; or errno, and then the companion goes on.
  virtual int stop(std::chrono::steady_clock::time_point deadline) = 0;
  // Called when all contexts are parked. Afterwards the companion holds no descriptor that a move cannot take along.
  virtual void park() {}
  // 0, or the errno value of what cannot go on.
  virtual int resume() = 0;
  // Called by the agent again and again, also while the companion is stopped: does what others have asked for.
  virtual void tend() {}
  // Descriptors that poll readable when there is something to tend.
  virtual std::vector<int> awaited() { return {}; }
  virtual RdmaCmStatus status() { return {}; }
};

class Registry {
 public:
  struct Entry {
    device::MovableContext* context = nullptr;
    std::string device, netdev;
  };

  // Held while a device is opened or closed. Its constructor waits while a stop is on: a context that is opened then
  // would not be moved.
  class Change {
   public:
    explicit Change(Registry& registry);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    void add(Entry entry);
    void remove(const device::MovableContext* context);

   private:
    Registry& registry_;
  };

  // `companion` lives as long as the registry. Not called while a stop is on.
  void set_companion(Companion* companion) { companion_ = companion; }
  Companion* companion() const { return companion_; }

  // Shuts changes out until end_stop(). False: a change was still under way at the deadline.
  bool begin_stop(std::chrono::steady_clock::time_point deadline);
  void end_stop();

  // Tells these names to all contexts, also to those that are added later (MovableContext::moved()).
  void set_moved_names(device::MovedNames names);

  // Calls `visit` for each context; no context goes away meanwhile.
  template <typename Visit>
  void for_each(Visit visit) {
    std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) visit(entry);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  device::MovedNames moved_names_;
  std::atomic<Companion*> companion_{nullptr};
  int changes_ = 0;
  bool stopped_ = false;
};

}  // namespace ferry::agent
