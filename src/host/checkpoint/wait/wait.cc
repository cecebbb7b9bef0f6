#include "host/checkpoint/wait/wait.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/failure.h"
#include "base/log.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/checkpoint/facts.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kGrace{10};  // from SIGTERM to SIGKILL: less than Slurm's KillWait
constexpr milliseconds kHostAnswer{2000};   // for a host to answer
constexpr milliseconds kBetweenLooks{400};  // at another host
constexpr std::chrono::seconds kAgain{5};   // until a host is asked again that did not answer

// Of the latest restart, by the names of the hosts. The restart has logged why there are none.
std::map<std::string, std::string> records_of_hosts(const store::Checkpoint& checkpoint) {
  std::map<std::string, std::string> records;
  report_failure([&] {
    for (const auto& record : checkpoint.hosts_of_latest_restart()) {
      records[parse_peer(record).name] = record;
    }
  });
  return records;
}

}  // namespace

v1::RestartedPrograms waited_programs(const ThisHost& host, const store::Checkpoint& checkpoint,
                                      const v1::RestartReport& report) {
  v1::RestartedPrograms programs;
  *programs.mutable_report() = report;
  for (const auto& program : checkpoint.manifest().programs) {
    programs.add_ids(parse_facts(program.facts, program.name).move_id);
  }
  const auto records = records_of_hosts(checkpoint);
  for (const auto& each : report.hosts()) {
    const auto record = records.find(each);
    programs.add_ferryds(each == host.name         ? std::string()
                         : record == records.end() ? each + "@" + each
                                                   : record->second);
  }
  return programs;
}

// The programs on one host.
class Wait::Host {
 public:
  Host(const ThisHost& host, const Restarted& here, const std::string& record) : here_(here) {
    if (record.empty()) return;
    const auto [address, name] = parse_peer(record);
    peer_ = std::make_unique<Peer>(address, host.credentials, name);
  }

  void add(std::uint64_t id, const std::string& name, const std::string& host) {
    programs_.push_back({id, name, host, std::nullopt, false});
  }
  bool is_over() const {
    return std::ranges::all_of(programs_, [](const Program& each) { return each.has_ended; });
  }

  void look(int signal, const Tell& tell) {
    // A signal that has come since the last answer is passed on at once.
    const bool is_new = signal != signalled_ && !is_silent_;
    if (is_over() || (Clock::now() < next_ && !is_new)) return;
    // SIGTERM once, SIGKILL until they have ended.
    const int now = signal == SIGTERM && signalled_ == SIGTERM ? 0 : signal;
    v1::RestartedRequest request;
    request.set_signal(now);
    std::vector<Program*> asked;
    for (auto& program : programs_) {
      if (program.has_ended) continue;
      auto* const added = request.add_programs();
      added->set_id(program.id);
      if (program.root) *added->mutable_root() = *program.root;
      asked.push_back(&program);
    }
    try {
      const auto reply = ask(request);
      if (static_cast<std::size_t>(reply.programs_size()) != asked.size()) {
        throw Failure("malformed answer");
      }
      for (std::size_t i = 0; i < asked.size(); ++i) {
        note(*asked[i], reply.programs(static_cast<int>(i)), tell);
      }
      signalled_ = signal;
      is_silent_ = false;
      next_ = Clock::now() + (peer_ ? kBetweenLooks : milliseconds(0));
    } catch (const Failure& failure) {
      next_ = Clock::now() + kAgain;
      if (is_silent_) return;
      is_silent_ = true;
      v1::WaitEvent event;
      event.set_notice(fmt::format("{} is taken to run on {}, which does not say anything else: {}",
                                   names(), programs_.front().host, printable(failure.what())));
      tell(event);
    }
  }

 private:
  struct Program {
    std::uint64_t id;
    std::string name, host;
    std::optional<v1::ProcessName> root;  // once it is known: no later program with the id is meant
    bool has_ended;
  };

  v1::RestartedReply ask(const v1::RestartedRequest& request) {
    if (!peer_) return here_.answer(request);
    v1::RestartedReply reply;
    peer_->call(request, &reply, kHostAnswer);
    return reply;
  }

  static void note(Program& program, const v1::RestartedReply::Program& answer, const Tell& tell) {
    if (!answer.ended()) {
      program.root = answer.root();
      return;
    }
    program.has_ended = true;
    v1::WaitEvent event;
    auto* const ended = event.mutable_ended();
    ended->set_id(program.id);
    ended->set_program(program.name);
    ended->set_host(program.host);
    ended->set_moved_to(printable(answer.moved_to()));
    if (answer.has_status()) ended->set_status(answer.status());
    tell(event);
  }

  std::string names() const {
    std::string names;
    for (const auto& program : programs_) {
      if (!program.has_ended) names += (names.empty() ? "" : ", ") + program.name;
    }
    return names;
  }

  const Restarted& here_;
  std::unique_ptr<Peer> peer_;  // null: this host
  std::vector<Program> programs_;
  int signalled_ = 0;  // the latest signal that the host has
  bool is_silent_ = false;
  Clock::time_point next_;
};

Wait::Wait(const ThisHost& host, const Restarted& here, const v1::RestartedPrograms& programs)
    : here_(here) {
  const auto& report = programs.report();
  const int count = report.programs_size();
  if (count == 0 || report.hosts_size() != count || programs.ids_size() != count ||
      programs.ferryds_size() != count) {
    throw Failure("malformed request");
  }
  for (int i = 0; i < count; ++i) {
    auto& at = hosts_[programs.ferryds(i)];
    if (!at) at = std::make_unique<Host>(host, here_, programs.ferryds(i));
    at->add(programs.ids(i), printable(report.programs(i)), printable(report.hosts(i)));
  }
}

Wait::~Wait() = default;

void Wait::look(const Tell& tell) {
  is_to_kill_ = is_to_kill_ || (is_to_end_ && Clock::now() >= kill_at_);
  const int signal = is_to_kill_ ? SIGKILL : is_to_end_ ? SIGTERM : 0;
  std::mutex mutex;
  in_parallel(hosts_, [&](const auto& entry) {
    entry.second->look(signal, [&](const v1::WaitEvent& event) {
      std::lock_guard lock(mutex);
      tell(event);
    });
  });
}

bool Wait::is_over() const {
  return std::ranges::all_of(hosts_, [](const auto& entry) { return entry.second->is_over(); });
}

void Wait::end() {
  if (is_to_end_) return end_at_once();
  is_to_end_ = true;
  kill_at_ = Clock::now() + kGrace;
}

}  // namespace ferry::host
