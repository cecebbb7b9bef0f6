#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/letters/carrier.h"
#include "port/endpoint.h"

namespace ferry::host {

class ControlServer;
class KeptPeers;
class Residents;
struct ThisHost;

// The GIDs of programs that have moved with a device of the kernel. A program that connects with one
// of these GIDs cannot count on finding there whom it looks for (device::MovableContext::moved_gids()).
// Each ferryd tells those that it knows the GIDs of the programs on its host, and is told theirs; its
// processes get all. Any thread may call.
class MovedGids {
 public:
  // Whether programs of this host can have devices of the kernel at all; else others are not asked.
  using HasDevices = std::function<bool()>;

  MovedGids(const ThisHost& host, ControlServer& control, const Carrier& carrier,
            const Residents& residents, KeptPeers& peers, HasDevices has_devices);
  ~MovedGids();
  MovedGids(const MovedGids&) = delete;

  // A program has come and is about to go on. When this returns, those ferryds know of its GIDs that
  // have answered last time, unless they do not answer in time now; the others are told afterwards.
  void arrived();
  // A process has registered, which is to be told.
  void registered(pid_t pid);
  // What another ferryd tells and asks. Throws Failure for a malformed request.
  v1::MovedGidsReply receive(const v1::MovedGidsRequest& request);

 private:
  using Clock = std::chrono::steady_clock;
  using Gids = std::set<port::Address>;
  // What is known of another ferryd.
  struct Other {
    Gids theirs;
    Gids told;  // ours, as it has been told
    Clock::time_point told_at{}, heard_at{};
    bool answers = false;  // to the latest question
  };
  enum class Whom { kThoseThatAnswered, kAll };

  Gids own() const;
  void look();
  void exchange(Whom whom);
  void tell(const Carrier::Ferryd& ferryd, const Gids& gids, std::chrono::milliseconds limit);
  void forget_silent();
  // Tells the processes, if something has changed.
  void spread();

  const ThisHost& host_;
  ControlServer& control_;
  const Carrier& carrier_;
  const Residents& residents_;
  KeptPeers& peers_;
  const HasDevices has_devices_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Other> others_;  // by address:port
  Gids known_;                           // what processes have been told
  bool stopping_ = false;
  std::mutex spreading_;  // processes are told one change after the other
  std::thread thread_;
};

}  // namespace ferry::host
