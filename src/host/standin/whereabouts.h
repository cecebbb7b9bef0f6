#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/protocol.h"
#include "host/control/control_server.h"
#include "host/directory/directory.h"
#include "host/journal/process_slots.h"
#include "host/standin/residents.h"

namespace ferry::host {

// Tells the directory where this host's programs are, from their arrival to their end, and tells
// these programs where their peers are.
class Whereabouts {
 public:
  // `name`, `ferryd`: the name and the ferryd's address of this host, as a Place has them.
  Whereabouts(std::string name, std::string ferryd, ControlServer& control, Directory& directory,
              Residents& residents);
  ~Whereabouts();

  // The process has these sockets, or gets them when it wakes: ferryd has bound them for it. `pid`
  // 0: the process is not known yet. `comes_back`: its move was given up.
  void arrived(pid_t pid, const std::vector<ContextSlots>& contexts, bool comes_back = false);
  // As arrived(), by a restart from a checkpoint.
  void restarted(pid_t pid, const std::vector<ContextSlots>& contexts);
  // The RNICs in these slots have ended, unless they are elsewhere by now.
  void ended(const std::vector<rnic::Slot>& slots);
  // The RNICs of these processes are elsewhere by a commit: they do not end with the processes
  // here.
  void left(const std::vector<pid_t>& pids, const std::vector<Place>& next);

  // Asks the directory, in the background; the answer goes to the process. Users are served in
  // turn, and each container's root as a user of its own, so that nobody's questions delay all
  // others'.
  void locate(pid_t pid, const agent::Locate& question);

  // The RNICs of this host that were opened at `address` and belong to a process that, by the
  // kernel, listens on an rdma_cm service there.
  std::vector<Place> listeners(const port::Address& address, std::uint64_t service) const;

 private:
  using Asker = std::pair<uid_t, std::uint64_t>;  // user; root's outermost pid namespace
  using Question = std::pair<pid_t, port::Endpoint>;

  void look();
  void find();
  port::Endpoint next_question();
  std::vector<pid_t> take_askers(const port::Endpoint& name);

  const std::string name_, ferryd_;
  ControlServer& control_;
  Directory& directory_;
  Residents& residents_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::map<Asker, std::deque<Question>> questions_;  // no list of it is empty
  Asker served_{};                                   // the last that was served
  std::thread looker_, finder_;
};

}  // namespace ferry::host
