#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/movable.h"
#include "host/peers/messages.h"

namespace ferry::host {

class ControlServer;
class Directory;
class KeptPeers;
class QpNames;
struct ThisHost;

// Carries letters (device::Letter) between programs with devices of the kernel, on this host and on
// others. Letters to one QP arrive in their order. A letter whose receiver is nowhere is tried again
// and again: the receiver may be on its way to another host. Its sender gets it back, without its bytes,
// when a program without Ferry has the QP, or nobody has received it for a minute. Any thread may call.
class Carrier {
 public:
  // The ferryd of a host.
  struct Ferryd {
    std::string address, host;  // address:port, and the host's name; both empty: this ferryd
    auto operator<=>(const Ferryd&) const = default;
  };
  // A QP and its peer.
  struct Connection {
    device::Letter::End own, peer;
  };

  // For this long after ferryd's start, a process that has not registered may still be one of Ferry's.
  static constexpr std::chrono::seconds kAllHaveRegistered{3};

  // `most`: letters of a process that are under way.
  Carrier(const ThisHost& host, ControlServer& control, Directory& directory, QpNames& names,
          KeptPeers& peers, std::size_t most = 1 << 16);
  // Letters that are on their way are lost.
  ~Carrier();
  Carrier(const Carrier&) = delete;

  // Takes letters of process `pid` of this host. Letters in the name of a QP that is not the process's own are
  // dropped, with a line in the log. Returns at once.
  void send(pid_t pid, std::vector<device::Letter> letters);
  // Delivers the letters that another ferryd sends, or says which of them programs of this host would get. Throws
  // Failure for a malformed request.
  v1::LettersReply receive(const v1::LettersRequest& request);
  // Notes that there is a ferryd at this place, which can be asked from now on.
  void met(const Ferryd& ferryd);

  struct Found {
    // For each connection, where the peer's program is; nothing: no ferryd knows it.
    std::vector<std::optional<Ferryd>> places;
    std::set<std::string> silent;  // addresses, with ports, where no ferryd answers
  };
  Found find(const std::vector<Connection>& connections);
  // Asks whether there are ferryds at these addresses. Those that answer are known from now on.
  void find_at(const std::set<port::Address>& addresses);
  // The processes of this host that have the QPs `own`, connected with the QPs `peer`; 0: none.
  std::vector<pid_t> owners_of(const std::vector<Connection>& connections);
  // The ferryds of other hosts: those that the directory tells, and those of met().
  std::vector<Ferryd> known() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Errors = std::vector<std::int32_t>;
  using Letters = std::vector<device::Letter>;
  struct Pending {
    device::Letter letter;
    Clock::time_point since;
    bool is_given_back = false;  // its sender has got it back; it is tried on nevertheless
  };
  struct Box {
    std::vector<Pending> letters;  // that the box's thread has not taken yet
    std::size_t carried = 0;       // letters that the thread has
  };
  enum class Task { kDeliver, kAsk };

  void work(pid_t pid);
  void carry(pid_t pid, std::vector<Pending>* letters);
  void give_back(pid_t pid, const Letters& letters);
  // hand_over() asks the programs of this host, ask() another ferryd, ask_all() all of them. Each gives 0 or errno for
  // each letter; ask() of the first letters only, if the ferryd does not answer any more, and it remembers where
  // receivers are.
  Errors hand_over(const Letters& letters, Task task);
  Errors ask(const Ferryd& ferryd, const Letters& letters, Task task);
  std::optional<Errors> ask_at_once(const Ferryd& ferryd, v1::LettersRequest request, Task task);
  Errors ask_all(const Letters& letters, Task task, std::set<std::string>* silent);
  void look_for_owners(const std::set<pid_t>& pids, const std::vector<Connection>& connections,
                       std::vector<pid_t>* owners);
  void note_others(const Letters& letters, const std::vector<pid_t>& owners, Errors* errors);

  const ThisHost& host_;
  ControlServer& control_;
  Directory& directory_;
  QpNames& names_;
  KeptPeers& peers_;
  const std::size_t most_;
  const Clock::time_point began_ = Clock::now();

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<pid_t, Box> boxes_;  // by process; each box has a thread
  std::map<device::Letter::End, Ferryd> routes_;
  std::map<std::string, std::string> met_;  // names of hosts, by address
  bool stopping_ = false;
};

}  // namespace ferry::host
