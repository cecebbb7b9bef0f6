#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "host/units/podman/podman.h"
#include "host/units/podman/podman_notes.h"

namespace ferry::host {

// Clears up what failed moves, and former ferryds, have left of podman's containers, in a thread of
// its own: podman may be at work on them, and may fail.
class PodmanCleaner {
 public:
  // `stopping`: set before the destructor.
  PodmanCleaner(const Podman& podman, const PodmanNotes& notes, const std::atomic<bool>& stopping);
  ~PodmanCleaner();

  // Removes a container whose arrival was given up, with its volumes and its note. Tries until
  // nothing is left of it.
  void remove(const std::string& token, const PodmanArrival& arrival);
  // Carries out something else with a container; `work` gives false to be called again.
  void add(const std::string& id, const std::string& name, std::function<bool()> work);
  // Waits a while until there is nothing to do with a container of this id or name.
  void await(const std::string& id, const std::string& name);

 private:
  struct Task {
    std::string id, name;
    std::function<bool()> work;
  };

  void run();
  bool remove_arrival(const std::string& token, const PodmanArrival& arrival) const;
  std::string remove_container(const PodmanArrival& arrival) const;

  const Podman& podman_;
  const PodmanNotes& notes_;
  const std::atomic<bool>& stopping_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first is being worked on
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ferry::host
