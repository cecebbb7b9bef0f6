#pragma once

#include <chrono>
#include <deque>
#include <functional>
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
  ~Qmp();
  Qmp(const Qmp&) = delete;

  // Gives what the command returns. Throws Failure, with the words of QEMU if it refuses.
  nlohmann::json execute(const std::string& command);
  nlohmann::json execute(const std::string& command, const nlohmann::json& arguments);
  // The same for QEMU's human monitor, which takes options as QEMU's command line does.
  void type(const std::string& line);
  // Returns when QEMU has told of such an event, also before. False: it has not before `until`.
  bool await(const std::function<bool(const nlohmann::json& event)>& is_meant,
             Clock::time_point until);

 private:
  std::optional<nlohmann::json> read(Clock::time_point until);
  nlohmann::json answer();

  const std::chrono::milliseconds limit_;
  LineChannel channel_;
  std::deque<nlohmann::json> events_;  // that nobody has waited for yet, the latest ones
};

}  // namespace ferry::host
