#include "host/proc/device_trial.h"

#include <fmt/core.h>

#include <chrono>

#include "base/companion.h"
#include "base/failure.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kLimit{20};

}  // namespace

void try_device(const std::string& device, const std::string& needs) {
  Command command;
  command.argv = {need_companion("ferry-device-trial"), device};
  command.input = needs;
  const Outcome outcome = run(command, kLimit);
  if (outcome.ok()) return;
  std::string reason = printable(outcome.err.substr(0, outcome.err.find('\n')));
  if (reason.empty()) reason = fmt::format("ferry-device-trial ended with {}", outcome.status);
  throw Failure(fmt::format("{} has not what the program needs: {}", device, reason));
}

}  // namespace ferry::host
