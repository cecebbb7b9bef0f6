#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "agent/protocol.h"
#include "migrate/directory.h"
#include "migrate/host.h"
#include "migrate/unique_fd.h"

namespace ferry::migrate {

// What this host tells the directory of its programs, from their registration to their end, and
// what its programs are told of their peers.
class Whereabouts {
 public:
  explicit Whereabouts(Host& host);
  ~Whereabouts();

  // Its RNICs that have been elsewhere are here. Asks the process, in the background.
  void registered(pid_t pid);
  // They are here before their process can say so: a move is committed.
  void arrived(const std::vector<device::Slot>& slots);
  // They have ended, unless they are elsewhere by now.
  void ended(const std::vector<device::Slot>& slots);
  // Committed to be elsewhere: the end of the process here is not that of its RNICs.
  void left(const std::vector<pid_t>& pids, const std::vector<Place>& next);

  // Asks the directory, in the background; the answer goes to the process.
  void locate(pid_t pid, const agent::Locate& question);

  // The RNICs of this host that were opened at `address` and belong to a process that listens on an
  // rdma_cm service there.
  std::vector<Place> listeners(const port::Address& address, std::uint64_t service);

 private:
  struct Resident {
    UniqueFd pidfd;
    std::vector<Place> places;
  };

  void look();
  void learn(pid_t pid, const agent::StatusReply& status);
  void find();

  Host& host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::map<pid_t, Resident> residents_;
  std::deque<std::pair<pid_t, port::Endpoint>> questions_;
  std::thread looker_, finder_;
};

}  // namespace ferry::migrate
