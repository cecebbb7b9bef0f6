#include "cli/doctor/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ferry::cli::doctor {
namespace {

const char* mark_of(State state) {
  switch (state) {
    case State::kOk: return "ok";
    case State::kNote: return "note";
    case State::kProblem: return "problem";
  }
  return "";
}

}  // namespace

bool has_problem(const Report& report) {
  return std::ranges::any_of(report, [](const Group& group) {
    return std::ranges::any_of(
        group.findings, [](const auto& finding) { return finding.state == State::kProblem; });
  });
}

std::string text_of(const Report& report) {
  std::string text;
  for (const Group& group : report) {
    text += group.name + "\n";
    for (const Finding& finding : group.findings) {
      text += fmt::format("  {:<7}  {}{}: {}{}{}\n", mark_of(finding.state),
                          finding.host.empty() ? "" : finding.host + ", ", finding.check,
                          finding.found, finding.way_out.empty() ? "" : "; ", finding.way_out);
    }
  }
  return text;
}

std::string json_of(const Report& report) {
  using nlohmann::ordered_json;
  ordered_json checks = ordered_json::array();
  for (const Group& group : report) {
    for (const Finding& finding : group.findings) {
      checks.push_back({{"group", group.name},
                        {"check", finding.check},
                        {"state", mark_of(finding.state)},
                        {"found", finding.found},
                        {"way_out", finding.way_out},
                        {"host", finding.host}});
    }
  }
  return ordered_json{{"checks", std::move(checks)}}.dump(2) + "\n";
}

}  // namespace ferry::cli::doctor
