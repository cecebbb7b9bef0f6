#include "host/checkpoint/find/programs_here.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>

#include "base/failure.h"
#include "base/job_name.h"
#include "device/parcel.h"
#include "host/control/control_server.h"
#include "host/proc/environment.h"
#include "host/proc/process_tree.h"
#include "host/proc/tcp_table.h"
#include "host/units/units.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kStatusOfAll{2};

// A program that is asked for, or may be.
struct Candidate {
  Units::Found found;
  bool is_container = false;
  pid_t process = 0;  // the first of it that is asked for; 0: none
};

bool is_below_number(pid_t pid, const std::string& text) {
  pid_t root = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, root);
  return error == std::errc() && rest == end && root > 0 && is_below(pid, root);
}

class Search {
 public:
  Search(ControlServer& control, const Units& units, const Question& question)
      : control_(control), units_(units), question_(question) {
    const auto is_of_tcp = [](const ConnectionEnd& end) { return end.second != Connection::End(); };
    asks_for_tcp_ = std::any_of(question.ends.begin(), question.ends.end(), is_of_tcp);
    const bool asks_for_qps = !std::all_of(question.ends.begin(), question.ends.end(), is_of_tcp);
    if (asks_for_qps) statuses_ = control.statuses(kStatusOfAll);
  }

  std::vector<FoundProgram> run() {
    for (const auto& process : control_.processes()) look_at(process.pid);
    look_at_others();
    for (auto& [root, candidate] : candidates_) {
      if (candidate.process == 0 && has_tcp(*candidate.found.unit)) candidate.process = root;
    }
    std::erase_if(candidates_, [](const auto& entry) { return entry.second.process == 0; });
    std::vector<FoundProgram> programs;
    for (const auto& [root, candidate] : candidates_) {
      if (is_whole(root, candidate)) programs.push_back(described(candidate));
    }
    return programs;
  }

 private:
  void look_at(pid_t pid) {
    const bool is_wanted = is_of_job(pid) || is_named(pid) || has_qp(pid);
    if (!is_wanted && !asks_for_tcp_) return;
    try {
      note(candidate_of(pid), is_wanted ? pid : 0);
    } catch (const Failure&) {
      if (is_wanted && is_alive(pid)) throw;
    }
  }

  // Processes that use no RDMA: what `ferry run --job` has started, the container or pid that is named, and those of
  // the containers. A batch system's shell, which has the job's id too, is none of these, nor is a script that calls
  // `ferry checkpoint`.
  void look_at_others() {
    const bool is_name_open =
        !question_.program.empty() &&
        std::none_of(candidates_.begin(), candidates_.end(),
                     [](const auto& entry) { return entry.second.process != 0; });
    if (question_.job.empty() && !is_name_open && !asks_for_tcp_) return;
    const std::uint64_t network = namespace_inode(::getpid(), "net");
    std::set<std::uint64_t> done{0, network};  // networks
    const auto processes = all_processes();
    const auto asking = asking_processes(processes);
    for (const pid_t pid : processes) {
      if (asking.contains(pid)) continue;
      const bool is_wanted = is_started_for_job(pid) || (is_name_open && is_unit_named(pid));
      if (!is_wanted && (!asks_for_tcp_ || done.contains(namespace_inode(pid, "net")))) continue;
      try {
        Candidate& candidate = candidate_of(pid);
        if (!candidate.found.unit->netns().empty()) done.insert(namespace_inode(pid, "net"));
        if (is_of_this_host(candidate)) note(candidate, is_wanted ? pid : 0);
      } catch (const Failure&) {
        // It has ended, or a runtime runs it that is not known: then its connections name it, if it has some.
        if (!is_wanted) done.insert(namespace_inode(pid, "net"));
      }
    }
  }

  // `process`: of the candidate, asked for; 0: none.
  static void note(Candidate& candidate, pid_t process) {
    if (candidate.process == 0) candidate.process = process;
  }

  Candidate& candidate_of(pid_t pid) {
    const bool has_container = units_.name_of(pid).has_value();
    for (auto& [root, candidate] : candidates_) {
      if (candidate.is_container == has_container && is_below(pid, root)) return candidate;
    }
    Units::Found found = units_.of_process(control_, pid);
    const pid_t root = found.unit->root();
    const bool is_container = units_.name_of(root).has_value();
    return candidates_.emplace(root, Candidate{std::move(found), is_container}).first->second;
  }

  // Not so of a process without a container that shares its process ids with this host, and is another one's.
  static bool is_of_this_host(const Candidate& candidate) {
    return candidate.is_container || namespace_inode(candidate.found.unit->root(), "mnt") ==
                                         namespace_inode(::getpid(), "mnt");
  }

  // Ranks without containers are part of their mpiexec; what has started containers is no program beside these.
  bool is_whole(pid_t root, const Candidate& candidate) const {
    return candidate.is_container ||
           std::none_of(candidates_.begin(), candidates_.end(), [&](const auto& other) {
             if (other.first == root) return false;
             return other.second.is_container ? is_below(other.first, root)
                                              : is_below(root, other.first);
           });
  }

  // Those that run the ferry command, which may be the one that asks, and what has started them.
  static std::set<pid_t> asking_processes(const std::vector<pid_t>& processes) {
    std::set<pid_t> asking;
    for (const pid_t pid : processes) {
      const auto name = program_name(pid);
      if (name != "ferry" && name != "ferry-client") continue;
      asking.insert(pid);
      for (const pid_t above : ancestors(pid)) asking.insert(above);
    }
    return asking;
  }

  bool is_started_for_job(pid_t pid) const {
    return !question_.job.empty() && Environment(pid).get(kJobVariable) == question_.job &&
           is_of_user(pid);
  }
  bool is_of_job(pid_t pid) const {
    return !question_.job.empty() && job_of(pid) == question_.job && is_of_user(pid);
  }
  bool is_of_user(pid_t pid) const { return !question_.user || user_of(pid) == question_.user; }

  bool is_named(pid_t pid) const {
    const std::string& name = question_.program;
    return !name.empty() && (is_unit_named(pid) || program_name(pid) == name.substr(0, 15));
  }
  // By the name of its container, or a pid.
  bool is_unit_named(pid_t pid) const {
    const auto unit = units_.name_of(pid);
    return (unit && unit->name == question_.program) || is_below_number(pid, question_.program);
  }

  bool has_qp(pid_t pid) const {
    const auto status = statuses_.find(pid);
    if (status == statuses_.end()) return false;
    for (const auto& context : status->second.contexts) {
      if (!device::device_behind(context.place).empty()) continue;
      for (const auto& qp : context.qps) {
        const Connection::End local{port::to_string(qp.local.address), qp.local.udp_port};
        if (question_.ends.contains({local, {}})) return true;
      }
    }
    return false;
  }

  // TCP connections lead to containers only (docs/checkpoint.md).
  bool has_tcp(const Unit& unit) const {
    if (unit.netns().empty()) return false;
    const auto sockets = tcp_sockets_of_tree(unit.root());
    return std::any_of(sockets.begin(), sockets.end(), [&](const TcpSocket& socket) {
      const Connection connection{
          {},
          0,
          {socket.address, static_cast<std::uint16_t>(socket.port)},
          {socket.peer_address, static_cast<std::uint16_t>(socket.peer_port)}};
      return question_.ends.contains(own_end(connection));
    });
  }

  FoundProgram described(const Candidate& candidate) const {
    const auto& [unit, processes] = candidate.found;
    return {unit->root(), unit->name(), job_of(candidate.process),
            user_of(candidate.process).value_or(0),
            connections_of(control_, {{0, unit, processes}})};
  }

  ControlServer& control_;
  const Units& units_;
  const Question& question_;
  bool asks_for_tcp_ = false;
  std::map<pid_t, agent::StatusReply> statuses_;
  std::map<pid_t, Candidate> candidates_;  // by root
};

}  // namespace

std::vector<FoundProgram> programs_here(ControlServer& control, const Units& units,
                                        const Question& question) {
  return Search(control, units, question).run();
}

}  // namespace ferry::host
