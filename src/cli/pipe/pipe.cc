#include "cli/pipe/pipe.h"

#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "cli/pipe/local_piped.h"
#include "cli/text/size.h"
#include "cli/text/table.h"

namespace ferry::cli {
namespace {

using Json = nlohmann::json;

// Of a limit; 0 is none.
std::string limit_text(const Json& bytes, const char* unit) {
  const auto number = bytes.get<std::uint64_t>();
  return number == 0 ? std::string() : size_text(number) + unit;
}

std::string number_text(const Json& number) {
  return std::to_string(number.get<std::uint64_t>());
}

std::string pid_text(const Json& pid) {
  return pid == 0 ? std::string() : number_text(pid);
}

std::string joined(const Json& texts) {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "" : ",") + text.get<std::string>();
  return all;
}

std::string programs_text(const Json& report) {
  Table table({"PROGRAM", "PID", "USER", "CONTAINER", "LISTENING"});
  for (const auto& program : report.at("programs")) {
    table.add({program.at("name"), number_text(program.at("pid")), number_text(program.at("user")),
               number_text(program.at("container")), joined(program.at("listening"))});
  }
  return table.text();
}

std::string containers_text(const Json& report) {
  Table table({"CONTAINER", "NETWORK", "MEMORY", "MEMORY-LIMIT", "RATE", "CONNECTION-RATE"});
  for (const auto& each : report.at("containers")) {
    table.add({number_text(each.at("container")), number_text(each.at("network")),
               size_text(each.at("memory")), size_text(each.at("memory_limit")),
               limit_text(each.at("rate_limit"), "/s"),
               limit_text(each.at("connection_rate_limit"), "/s")});
  }
  return table.text();
}

std::string connections_text(const Json& report) {
  Table table({"FROM", "PID", "TO", "TO-PID", "SENT", "RECEIVED"});
  for (const auto& each : report.at("connections")) {
    table.add({each.at("from"), pid_text(each.at("from_pid")), each.at("to"),
               pid_text(each.at("to_pid")), size_text(each.at("sent_bytes")),
               size_text(each.at("received_bytes"))});
  }
  return table.text();
}

std::string rules_text(const Json& report) {
  Table table({"RULE", "ACTION", "FROM", "TO", "PORT"});
  for (const auto& rule : report.at("rules")) {
    table.add({number_text(rule.at("number")), rule.at("action"), rule.at("from"), rule.at("to"),
               rule.at("port") == 0 ? std::string() : number_text(rule.at("port"))});
  }
  return table.text();
}

std::string limits_text(const Json& report) {
  Table table({"LIMIT", "RATE", "CONNECTION-RATE", "MEMORY"});
  for (const auto& limit : report.at("limits")) {
    table.add({limit.at("address"), limit_text(limit.at("rate"), "/s"),
               limit_text(limit.at("connection_rate"), "/s"), limit_text(limit.at("memory"), "")});
  }
  return table.text();
}

}  // namespace

std::string pipe_text(const std::string& report) {
  const Json json = json_of(report);
  std::string text = programs_text(json);
  if (!json.at("containers").empty()) text += "\n" + containers_text(json);
  if (!json.at("connections").empty()) text += "\n" + connections_text(json);
  if (!json.at("rules").empty()) text += "\n" + rules_text(json);
  if (!json.at("limits").empty()) text += "\n" + limits_text(json);
  return text;
}

int pipe_change(const std::string& line) {
  ask_piped(line);
  return 0;
}

int pipe_ps(bool json) {
  const std::string report = ask_piped("ps");
  std::cout << (json ? json_text(json_of(report), 2) + "\n" : pipe_text(report));
  return 0;
}

}  // namespace ferry::cli
