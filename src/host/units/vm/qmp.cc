#include "host/units/vm/qmp.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/net.h"

namespace ferry::host {
namespace {

constexpr std::size_t kKeptEvents = 100;

}  // namespace

Qmp::Qmp(const std::string& path, std::chrono::milliseconds limit)
    : limit_(limit), channel_(connect_unix(path)) {
  const auto greeting = read(Clock::now() + limit_);
  if (!greeting || !greeting->contains("QMP")) {
    throw Failure(fmt::format(
        "the QEMU at {} says nothing; does another program have its monitor open?", path));
  }
  execute("qmp_capabilities");
}

Qmp::~Qmp() = default;

// The next message. Nothing: there is none before `until`.
std::optional<nlohmann::json> Qmp::read(Clock::time_point until) {
  const auto line = channel_.read(until);
  if (!line) return std::nullopt;
  auto message = json_or_discarded(*line);
  if (!message.is_object()) throw Failure("QEMU says what is not QMP");
  return message;
}

nlohmann::json Qmp::answer() {
  const auto until = Clock::now() + limit_;
  while (auto message = read(until)) {
    if (!message->contains("event")) return std::move(*message);
    events_.push_back(std::move(*message));
    if (events_.size() > kKeptEvents) events_.pop_front();
  }
  throw Failure("QEMU does not answer");
}

nlohmann::json Qmp::execute(const std::string& command) {
  return execute(command, nlohmann::json::object());
}

nlohmann::json Qmp::execute(const std::string& command, const nlohmann::json& arguments) {
  try {
    channel_.write(json_text({{"execute", command}, {"arguments", arguments}}) + "\n",
                   Clock::now() + limit_);
    auto said = answer();
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

bool Qmp::await(const std::function<bool(const nlohmann::json& event)>& is_meant,
                Clock::time_point until) {
  for (;;) {
    while (!events_.empty()) {
      const auto event = std::move(events_.front());
      events_.pop_front();
      if (is_meant(event)) return true;
    }
    auto message = read(until);
    if (!message) return false;
    if (message->contains("event")) events_.push_back(std::move(*message));
  }
}

}  // namespace ferry::host
