#include "host/checkpoint/find/named.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/failure.h"

namespace ferry::host {
namespace {

std::string hosts_of(const std::vector<HostAnswer>& answers) {
  std::string text;
  for (const auto& answer : answers) text += (text.empty() ? "" : ", ") + answer.host;
  return text;
}

}  // namespace

void add_named(Hosts& hosts, const std::string& named, bool with_here,
               std::vector<HostAnswer>* all) {
  const std::size_t at = named.rfind('@');
  Question question;
  question.program = named.substr(0, at);
  const std::string host = at == std::string::npos ? std::string() : named.substr(at + 1);
  if (question.program.empty() || (at != std::string::npos && host.empty())) {
    throw Failure(fmt::format("'{}' is no program, nor PROGRAM@HOST", printable(named)));
  }
  auto answers = hosts.ask(question, host);
  std::erase_if(answers, [&](const HostAnswer& answer) {
    return host.empty() && !with_here && answer.host == hosts.here();
  });
  const std::string asked = hosts_of(answers);
  std::erase_if(answers, [](const HostAnswer& answer) { return answer.programs.empty(); });
  const std::string program = printable(question.program);
  if (answers.empty()) {
    throw Failure(fmt::format("there is no program '{}' on {}; see: ferry ps, there", program,
                              host.empty() ? asked : host));
  }
  if (answers.size() > 1) {
    throw Failure(fmt::format("there is a program '{}' on {} each: give one, as {}@{}", program,
                              hosts_of(answers), program, answers[0].host));
  }
  HostAnswer& found = answers.front();
  if (found.programs.size() > 1) {
    throw Failure(fmt::format("'{}' is ambiguous on {}; give a pid, from ferry ps there, as PID@{}",
                              program, found.host, found.host));
  }
  const auto known = std::find_if(
      all->begin(), all->end(), [&](const HostAnswer& other) { return other.host == found.host; });
  if (known == all->end()) {
    all->push_back(std::move(found));
  } else {
    known->programs.push_back(std::move(found.programs.front()));
  }
}

}  // namespace ferry::host
