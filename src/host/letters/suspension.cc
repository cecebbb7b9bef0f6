#include "host/letters/suspension.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/parallel.h"
#include "host/control/control_server.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

// Between two questions to a process: an eighth of the time that has passed, within these limits. All peers may be
// suspended and wait in between, also those of QPs in use.
constexpr milliseconds kShortest{1}, kLongest{5};
constexpr milliseconds kAnswerOfProgram{10000};  // limit for a process's answer

}  // namespace

Suspension::Suspension(ControlServer& control, std::vector<pid_t> processes, std::uint64_t move_id,
                       milliseconds limit)
    : control_(control), processes_(std::move(processes)), move_id_(move_id), limit_(limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  try {
    in_parallel(processes_, [&](pid_t process) { suspend(process, deadline); });
  } catch (const Failure&) {
    release();
    throw;
  }
}

Suspension::~Suspension() {
  release();
}

void Suspension::suspend(pid_t process, std::chrono::steady_clock::time_point deadline) {
  const auto began = std::chrono::steady_clock::now();
  const agent::Suspend request{move_id_, static_cast<std::uint32_t>(2 * limit_.count()), false};
  while (!control_.suspend(process, request, kAnswerOfProgram)) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      throw Failure(
          fmt::format("a peer of process {} does not stop within {} ms: it waits for a receive, or "
                      "its host's ferryd does not answer",
                      process, limit_.count()));
    }
    std::this_thread::sleep_for(
        std::clamp(std::chrono::duration_cast<milliseconds>(now - began) / 8, kShortest, kLongest));
  }
}

// Has the peers of all processes go on, but for processes that have stopped or ended: these cannot be asked.
void Suspension::release() {
  for (const pid_t process : processes_) {
    try {
      control_.suspend(process, {move_id_, 0, true}, kAnswerOfProgram);
    } catch (const Failure&) {
      continue;
    }
  }
}

}  // namespace ferry::host
