// ferry-criu-action: CRIU's --action-script in Ferry's moves. Passes the action on to ferryd and
// ends with the status that ferryd answers. At the two actions that decide, post-dump and
// post-restore, ferryd answers when the move is decided, and CRIU waits. While there is no ferryd
// nobody knows the decision: the program stays frozen, however long that takes.
//
// Environment: CRTOOLS_SCRIPT_ACTION, CRTOOLS_INIT_PID (CRIU's), FERRY_MOVE_ID, FERRYD_SOCKET
// (ferryd's).

#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "criu/talk.h"

namespace {

constexpr int kAttempts = 300;  // to reach a ferryd that has just gone, 100 ms apart

bool decides(const std::string& action) {
  return action == "post-dump" || action == "post-restore";
}

bool concerns_ferryd(const std::string& action) {
  return action == "network-lock" || action == "network-unlock" || decides(action);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

int main() {
  ferry::agent::Action action;
  action.name = variable("CRTOOLS_SCRIPT_ACTION");
  if (!concerns_ferryd(action.name)) return 0;
  action.pid = std::atoi(variable("CRTOOLS_INIT_PID").c_str());
  action.move_id = std::strtoull(variable("FERRY_MOVE_ID").c_str(), nullptr, 10);
  const auto body = ferry::agent::encode(action);
  int error = 0;
  for (int attempt = 0; attempt < kAttempts || decides(action.name); ++attempt) {
    ferry::agent::Done reply;
    error = ferry::criu::ask(ferry::agent::MessageType::kAction, body, -1, &reply);
    if (error == 0 && reply.code != EAGAIN) {  // EAGAIN: ferryd ends before it could decide
      if (reply.code != 0 && !reply.error.empty()) {
        std::fprintf(stderr, "ferry-criu-action: %s: %s\n", action.name.c_str(),
                     reply.error.c_str());
      }
      return reply.code == 0 ? 0 : 1;
    }
    // ferryd has gone and may come back; only its records can tell how the move was decided.
    const timespec pause{0, 100000000};
    ::nanosleep(&pause, nullptr);
  }
  std::fprintf(stderr, "ferry-criu-action: %s: no ferryd answers: %s\n", action.name.c_str(),
               std::strerror(error));
  return 1;
}
