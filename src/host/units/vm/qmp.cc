#include "host/units/vm/qmp.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/net.h"

namespace ferry::host {

Qmp::Qmp(const std::string& path, std::chrono::milliseconds limit)
    : limit_(limit), channel_(connect_unix(path, limit)) {
  const auto greeting = read(Clock::now() + limit_);
  if (!greeting || !greeting->contains("QMP")) {
    throw Failure(fmt::format(
        "the QEMU at {} says nothing; does another program have its monitor open?", path));
  }
  execute("qmp_capabilities");
}

// The next message. Nothing: there is none before `until`.
std::optional<nlohmann::json> Qmp::read(Clock::time_point until) {
  const auto line = channel_.read(until);
  if (!line) return std::nullopt;
  auto message = json_or_discarded(*line);
  if (!message.is_object()) throw Failure("QEMU says what is not QMP");
  return message;
}

// To the command with this id: an earlier one may have been answered too late.
nlohmann::json Qmp::answer(std::uint64_t id) {
  const auto until = Clock::now() + limit_;
  while (auto message = read(until)) {
    if (message->value("id", std::uint64_t{0}) == id) return std::move(*message);
  }
  throw Failure("QEMU does not answer");
}

nlohmann::json Qmp::execute(const std::string& command) {
  return execute(command, nlohmann::json::object());
}

nlohmann::json Qmp::execute(const std::string& command, const nlohmann::json& arguments) {
  try {
    const std::uint64_t id = ++last_id_;
    channel_.write(json_text({{"execute", command}, {"arguments", arguments}, {"id", id}}) + "\n",
                   Clock::now() + limit_);
    auto said = answer(id);
    if (said.contains("return")) return said["return"];
    throw Failure(one_line(said.at("error").at("desc").get<std::string>()));
  } catch (const std::exception& failure) {
    throw Failure(fmt::format("QEMU's {}: {}", command, printable(failure.what())));
  }
}

void Qmp::type(const std::string& line) {
  const auto said = execute("human-monitor-command", {{"command-line", line}});
  const auto complaint = said.is_string() ? one_line(said.get<std::string>()) : std::string();
  if (!complaint.empty()) {
    throw Failure(
        fmt::format("QEMU's {}: {}", line.substr(0, line.find(' ')), printable(complaint)));
  }
}

}  // namespace ferry::host
