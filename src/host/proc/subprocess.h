#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/proc/process_tree.h"

// Programs that ferryd starts: they inherit no descriptors but 0 to 2 and those that are handed down,
// and no blocked signals.
namespace ferry::host {

struct Command {
  std::vector<std::string> argv;         // argv[0] is looked up in PATH
  std::vector<std::string> environment;  // NAME=VALUE, on top of ferryd's own
  std::string input;                     // stdin of run(); empty: /dev/null
  std::vector<int> descriptors;          // it gets these as 3, 4, ...
  bool own_session = false;              // it leads one; else it is of ferryd's
  std::atomic<pid_t>* pid = nullptr;     // run(): its pid while it runs, else 0
};

struct Outcome {
  int status = 0;  // exit status, 128 + signal, or 127 when it could not be started
  std::string out, err;
  bool ok() const { return status == 0; }
};

// Runs to the end. The caller ignores SIGPIPE: the program may not read all of its input. After
// `timeout`, `kill` kills it with all that it has started (status 128 + SIGKILL).
Outcome run(const Command& command, std::chrono::milliseconds timeout = std::chrono::seconds(60),
            const std::function<void(pid_t)>& kill = kill_tree);

// Starts in the background with stdout and stderr appended to `output`. -errno when it cannot be
// started. The caller waits for it with wait_for().
pid_t start(const Command& command, const std::string& output);

// Exit status, or 128 + signal.
int wait_for(pid_t pid);

// Collects the children that nobody waits for: orphans that the subreaper ferryd inherits. Children
// of start() and adopted ones (adopt_child) are left to their waiters.
void reap_orphans();

// `pid` will become (or is) a child of ferryd, and wait_for() waits for it.
void adopt_child(pid_t pid);

}  // namespace ferry::host
