#include "host/checkpoint/find/closure.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/failure.h"

namespace ferry::host {
namespace {

// "h1, h2".
template <typename Names>
std::string listed(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

class Closure {
 public:
  Closure(Hosts& hosts, const Wanted& wanted) : hosts_(hosts), wanted_(wanted) {}

  std::vector<HostAnswer> find() {
    if (wanted_.job.empty()) {
      begin_with_program();
    } else {
      begin_with_job();
    }
    for (auto ends = open_ends(); wanted_.with_peers && !ends.empty(); ends = open_ends()) {
      asked_.insert(ends.begin(), ends.end());
      Question question = of_job();
      question.ends = std::move(ends);
      for (auto& answer : hosts_.ask(question, {})) take(std::move(answer));
    }
    if (wanted_.with_peers) need_peers();
    std::vector<HostAnswer> all;
    for (auto& [host, answer] : found_) all.push_back(std::move(answer));
    return all;
  }

 private:
  // A program that is found, in words.
  struct Owner {
    std::string host, program;
    std::string text() const { return fmt::format("'{}' on {}", program, host); }
  };

  // Asked again with each question, because a question may reach other hosts.
  Question of_job() const {
    Question question;
    question.job = wanted_.job;
    question.user = wanted_.user;
    return question;
  }

  void begin_with_job() {
    std::set<std::string> asked;
    for (auto& answer : hosts_.ask(of_job(), {})) {
      asked.insert(answer.host);
      take(std::move(answer));
    }
    if (!found_.empty()) return;
    throw Failure(fmt::format(
        "no program of job '{}'{} on {}{}; see: ferry ps --job", printable(wanted_.job),
        wanted_.user ? fmt::format(" of user {}", *wanted_.user) : "", listed(asked), silence()));
  }

  void begin_with_program() {
    const std::size_t at = wanted_.connected_to.rfind('@');
    const std::string program = wanted_.connected_to.substr(0, at);
    std::string host =
        at == std::string::npos ? std::string() : wanted_.connected_to.substr(at + 1);
    if (program.empty() || (at != std::string::npos && host.empty())) {
      throw Failure(
          fmt::format("'{}' is no program, nor PROGRAM@HOST", printable(wanted_.connected_to)));
    }
    const bool is_of_any_host = host.empty() && !is_number(program);
    Question question;
    question.program = program;
    auto answers = having_programs(hosts_.ask(question, host.empty() ? hosts_.here() : host));
    if (answers.empty() && is_of_any_host) answers = having_programs(hosts_.ask(question, {}));
    if (answers.empty()) {
      throw Failure(fmt::format("there is no program '{}' on {}{}; see: ferry ps",
                                printable(program),
                                is_of_any_host ? "any host that was asked"
                                : host.empty() ? hosts_.here()
                                               : host,
                                silence()));
    }
    if (answers.size() > 1) {
      std::vector<std::string> names;
      for (const auto& answer : answers) names.push_back(answer.host);
      throw Failure(fmt::format("there is a program '{}' on {} each: give one, as {}@{}",
                                printable(program), listed(names), printable(program), names[0]));
    }
    if (answers[0].programs.size() > 1) {
      throw Failure(fmt::format("'{}' is ambiguous on {}; give a pid: ferry ps", printable(program),
                                answers[0].host));
    }
    user_ = answers[0].programs[0].user;
    take(std::move(answers[0]));
  }

  static std::vector<HostAnswer> having_programs(std::vector<HostAnswer> answers) {
    std::erase_if(answers, [](const HostAnswer& answer) { return answer.programs.empty(); });
    return answers;
  }

  void take(HostAnswer answer) {
    for (auto& program : answer.programs) {
      if (!pids_.emplace(answer.host, program.pid).second) continue;
      const Owner owner{answer.host, program.name};
      need_same(owner, program);
      for (const auto& connection : program.connections) note(owner, connection);
      auto& known = found_[answer.host];
      known.host = answer.host;
      known.ferryd = answer.ferryd;
      known.programs.push_back(std::move(program));
    }
  }

  void note(const Owner& owner, const Connection& connection) {
    if (connection.local != Connection::End()) {
      owners_[own_end(connection)].emplace(owner.host, owner);
    }
    const bool is_qp = connection.qpn != 0;
    // The peer of a connection of TCP that is closed may have ended.
    if (is_qp ? connection.peer == Connection::End() : connection.is_closed) return;
    wanted_by_.emplace(other_end(connection), std::pair(owner, connection.qpn));
  }

  // A program of somebody else's, or of another job, is not stopped because it is connected.
  void need_same(const Owner& owner, const FoundProgram& program) {
    if (!user_) user_ = wanted_.user.value_or(program.user);
    if (program.user != *user_) {
      if (program.job == wanted_.job && !wanted_.user && !wanted_.job.empty()) {
        throw Failure(fmt::format(
            "job '{}' is user {}'s, and another of this name user {}'s: say "
            "whose with --user",
            wanted_.job, std::min(*user_, program.user), std::max(*user_, program.user)));
      }
      throw Failure(fmt::format("{} is user {}'s, not user {}'s{}", owner.text(), program.user,
                                *user_, connected_with(program)));
    }
    if (wanted_.job.empty() || program.job == wanted_.job) return;
    throw Failure(fmt::format(
        "{} is of {}, not of job '{}'{}; name one program with --connected-to for all",
        owner.text(), program.job.empty() ? "no job" : fmt::format("job '{}'", program.job),
        wanted_.job, connected_with(program)));
  }

  // ", and connected with 'rank0' on h1".
  std::string connected_with(const FoundProgram& program) const {
    for (const auto& connection : program.connections) {
      const auto found = wanted_by_.find(own_end(connection));
      if (found != wanted_by_.end()) return ", and connected with " + found->second.first.text();
    }
    return {};
  }

  std::set<ConnectionEnd> open_ends() const {
    std::set<ConnectionEnd> open;
    for (const auto& [end, program] : wanted_by_) {
      if (!owners_.contains(end) && !asked_.contains(end)) open.insert(end);
    }
    return open;
  }

  // Of those of TCP that nobody has need_closed() says so.
  void need_peers() const {
    for (const auto& [end, program] : wanted_by_) {
      const auto& [owner, qpn] = program;
      const auto peers = owners_.find(end);
      if (peers != owners_.end() && peers->second.size() > 1) {
        throw Failure(fmt::format(
            "{} is connected with {}, port {}, which both {} and {} have; name the programs of the "
            "checkpoint one by one",
            owner.text(), end.first.address, end.first.port, peers->second.begin()->second.text(),
            std::next(peers->second.begin())->second.text()));
      }
      if (qpn == 0 || peers != owners_.end()) continue;
      throw Failure(fmt::format(
          "QP 0x{:06x} of {} is connected with {}, port {}, which no program has on the hosts that "
          "were asked{}; name that one's host with --hosts",
          qpn, owner.text(), end.first.address, end.first.port, silence()));
    }
  }

  // "; h3 does not answer".
  std::string silence() const {
    const auto silent = hosts_.silent();
    if (silent.empty()) return {};
    return fmt::format(" ({} {} not answer)", listed(silent), silent.size() > 1 ? "do" : "does");
  }

  Hosts& hosts_;
  const Wanted& wanted_;
  std::optional<uid_t> user_;
  std::map<std::string, HostAnswer> found_;       // by host
  std::set<std::pair<std::string, pid_t>> pids_;  // of what is found, with hosts
  // Who has an end, by host: of what is found. Private addresses may be those of several hosts.
  std::map<ConnectionEnd, std::map<std::string, Owner>> owners_;
  // Who has the other end, and the number of its QP; 0: of TCP.
  std::map<ConnectionEnd, std::pair<Owner, std::uint32_t>> wanted_by_;
  std::set<ConnectionEnd> asked_;
};

}  // namespace

ConnectionEnd own_end(const Connection& connection) {
  return {connection.local, connection.qpn != 0 ? Connection::End() : connection.peer};
}

ConnectionEnd other_end(const Connection& connection) {
  return {connection.peer, connection.qpn != 0 ? Connection::End() : connection.local};
}

std::vector<HostAnswer> find_closure(Hosts& hosts, const Wanted& wanted) {
  return Closure(hosts, wanted).find();
}

}  // namespace ferry::host
