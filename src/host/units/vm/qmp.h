#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/line_channel.h"

namespace ferry::host {

// A connection to the monitor of a QEMU, by QMP (docs/interop/qmp-spec of QEMU). QEMU serves one at a time: the next
// one waits until this one is closed.
class Qmp {
 public:
  using Clock = LineChannel::Clock;

  // `path`: of the monitor's UNIX socket. `limit`: for the connection and for each answer. Throws Failure.
  Qmp(const std::string& path, std::chrono::milliseconds limit);
  Qmp(const Qmp&) = delete;

  // Gives what the command returns. Throws Failure, with the words of QEMU if it refuses.
  nlohmann::json execute(const std::string& command);
  nlohmann::json execute(const std::string& command, const nlohmann::json& arguments);
  // The same for QEMU's human monitor, which takes options as QEMU's command line does.
  void type(const std::string& line);

 private:
  std::optional<nlohmann::json> read(Clock::time_point until);
  nlohmann::json answer(std::uint64_t id);

  const std::chrono::milliseconds limit_;
  LineChannel channel_;
  std::uint64_t last_id_ = 0;  // of a command
};

}  // namespace ferry::host
