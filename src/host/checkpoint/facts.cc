#include "host/checkpoint/facts.h"

#include <fmt/core.h>
#include <google/protobuf/util/json_util.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"
#include "host/journal/decision_log.h"
#include "host/move/slots_message.h"

namespace ferry::host {
namespace {

using nlohmann::json;

json json_of_message(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    throw Failure("a name in the checkpoint is not UTF-8");
  }
  return ferry::json_of(text);
}

void read_message(const json& value, google::protobuf::Message* message) {
  if (!google::protobuf::util::JsonStringToMessage(json_text(value), message).ok()) {
    throw Failure("a message in it is malformed");
  }
}

std::uint64_t parse_id(const std::string& text) {
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (error != std::errc() || end != text.data() + text.size() || id == 0) {
    throw Failure("its move has no id");
  }
  return id;
}

}  // namespace

Facts facts_of(const Cut::Part& part, const std::string& ferryd) {
  return {part.move_id,   *part.check,  part.places, stamp_now().boot,
          part.processes, part.written, ferryd};
}

json to_json(const Facts& facts) {
  v1::BindRequest bind;
  for (const auto& place : facts.places) to_message(place, bind.add_processes());
  json processes = json::array(), written = json::array();
  for (const auto& [pid, started] : facts.processes) {
    processes.push_back({{"pid", pid}, {"started", started}});
  }
  for (const auto& file : facts.written) {
    written.push_back({{"path", file.path}, {"bytes", file.bytes}, {"owner", file.owner}});
  }
  return {{"move_id", fmt::format("{:016x}", facts.move_id)},
          {"check", json_of_message(facts.check)},
          {"sockets", json_of_message(bind)},
          {"boot", facts.boot},
          {"processes", std::move(processes)},
          {"written_files", std::move(written)},
          {"ferryd", facts.ferryd}};
}

Facts parse_facts(const json& value, const std::string& program) {
  try {
    Facts facts;
    facts.move_id = parse_id(value.at("move_id").get<std::string>());
    read_message(value.at("check"), &facts.check);
    v1::BindRequest bind;
    read_message(value.at("sockets"), &bind);
    facts.places = from_messages(bind.processes());
    facts.boot = value.at("boot").get<std::uint64_t>();
    for (const auto& process : value.at("processes")) {
      facts.processes[process.at("pid").get<pid_t>()] = process.at("started").get<std::uint64_t>();
    }
    for (const auto& file : value.at("written_files")) {
      facts.written.push_back({file.at("path").get<std::string>(),
                               file.at("bytes").get<std::uint64_t>(),
                               file.at("owner").get<uid_t>()});
    }
    facts.ferryd = value.value("ferryd", std::string());
    return facts;
  } catch (const std::exception& failure) {
    throw Failure(fmt::format("what the checkpoint says of '{}' is malformed: {}",
                              printable(program), one_line(failure.what())));
  }
}

}  // namespace ferry::host
