#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/checkpoint/take/connections.h"
#include "host/peers/peer_record.h"

// Which programs a checkpoint is of, when they are not named one by one: all of a job, or all that are connected with a
// program, on all hosts.
namespace ferry::host {

// One end of a connection: of a QP its place, and no more; of TCP its place and its peer's.
using ConnectionEnd = std::pair<Connection::End, Connection::End>;
ConnectionEnd own_end(const Connection& connection);
ConnectionEnd other_end(const Connection& connection);

// Asks for the programs of a job, for those of a name, and for those that have one of these ends.
struct Question {
  std::string job;            // empty: of none
  std::optional<uid_t> user;  // of the job; nothing: of any user
  std::string program;        // name of a container or a program, or a pid; empty: none
  std::set<ConnectionEnd> ends;
};

struct FoundProgram {
  pid_t pid = 0;  // of its first process
  std::string name;
  std::string job;  // empty: of none
  uid_t user = 0;
  std::vector<Connection> connections;
};

struct HostAnswer {
  std::string host;
  PeerRecord ferryd;  // no address: this ferryd
  std::vector<FoundProgram> programs;
};

// Those that can be asked.
class Hosts {
 public:
  virtual ~Hosts() = default;
  virtual std::string here() const = 0;  // name of this host
  // The answers of different hosts, also those without programs. `only`: asks this host only; empty: all. Throws
  // Failure: a host that has to answer does not, or says why it cannot.
  virtual std::vector<HostAnswer> ask(const Question& question, const std::string& only) = 0;
  // Those that have not answered.
  virtual std::set<std::string> silent() const = 0;
};

struct Wanted {
  std::string job;
  std::optional<uid_t> user;  // nothing: the only one who has such a job
  // In place of the job: PROGRAM, or PROGRAM@HOST. Without a host, the one of this host, or else the only one that
  // there is.
  std::string connected_to;
  bool with_peers = true;  // false: those of the job, whatever they are connected with
};

// The hosts that have programs of it, by their names. Throws Failure: there is none, or, with peers, one is connected
// with a program of another user or job, or with one that no host has.
std::vector<HostAnswer> find_closure(Hosts& hosts, const Wanted& wanted);

}  // namespace ferry::host
