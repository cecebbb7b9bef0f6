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

#include "device/movable.h"
#include "host/letters/carrier.h"
#include "port/endpoint.h"

namespace ferry::host {

class ControlServer;
class KeptPeers;
class QpNames;
class Residents;
struct ThisHost;

// The names by which peers know programs that have moved with a device of the kernel, and which no longer lead to
// these programs: their GIDs, and for UD QPs also where the QPs are now (device::MovableContext::moved()). Each ferryd
// tells the ferryds that it knows the names of the programs on its host, and is told their names; it tells all names
// to the processes of its host. Any thread may call.
class MovedNames {
 public:
  // Whether programs of this host can have devices of the kernel, or have had some elsewhere; if not, no other
  // ferryd is asked.
  using HasDevices = std::function<bool()>;

  MovedNames(const ThisHost& host, ControlServer& control, const Carrier& carrier,
             const Residents& residents, const QpNames& qp_names, KeptPeers& peers,
             HasDevices has_devices);
  ~MovedNames();
  MovedNames(const MovedNames&) = delete;

  // A program has come and is about to go on. Tells its GIDs to the ferryds that have answered the last time, and
  // returns when they have answered or the time is over; the other ferryds are told afterwards.
  void arrived();
  // A process says where its UD QPs are. Names that neither the kernel nor the program's former hosts confirm are
  // dropped, and so are names that QPs of those hosts have. Other ferryds are told as by arrived().
  void datagram_qps(pid_t pid, const std::vector<device::DatagramQps>& contexts);
  // A process has registered: tells it the names that the other processes know.
  void registered(pid_t pid);
  // Takes the names that another ferryd tells, and answers which of its claims are taken on this host. Throws Failure
  // for a malformed request.
  v1::MovedNamesReply receive(const v1::MovedNamesRequest& request);

 private:
  using Clock = std::chrono::steady_clock;
  struct Names {
    std::set<port::Address> gids;
    std::set<device::DatagramQps> datagram_qps;
    bool operator==(const Names&) const = default;
  };
  // What is known of another ferryd.
  struct Other {
    Names theirs;
    Names told;  // the names of this host that it has heard of
    Clock::time_point told_at{}, heard_at{};
    bool answers = false;  // it has answered the latest request
  };
  enum class Whom { kThoseThatAnswered, kAll };

  static Names names_in(const v1::MovedNames& message);
  static void put(const Names& names, v1::MovedNames* message);
  static device::MovedNames message_of(const Names& names);

  std::vector<device::DatagramQps> checked(pid_t pid,
                                           const std::vector<device::DatagramQps>& contexts) const;
  void leave_taken(std::vector<device::DatagramQps>* contexts);
  Names own();
  void look();
  void exchange(Whom whom);
  void tell(const Carrier::Ferryd& ferryd, const Names& names, std::chrono::milliseconds limit);
  void forget_silent();
  // Tells all names to the processes of this host, if the names have changed.
  void spread();

  const ThisHost& host_;
  ControlServer& control_;
  const Carrier& carrier_;
  const Residents& residents_;
  const QpNames& qp_names_;
  KeptPeers& peers_;
  const HasDevices has_devices_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Other> others_;                             // by address:port
  std::map<pid_t, std::vector<device::DatagramQps>> datagram_qps_;  // of processes of this host
  Names known_;                                                     // what processes have been told
  bool stopping_ = false;
  std::mutex spreading_;  // held while processes are told, one change after the other
  std::thread thread_;
};

}  // namespace ferry::host
