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

// Programs that ferryd starts. They inherit no descriptors but 0 to 2 and those of Command::descriptors, and no blocked
// signals.
namespace ferry::host {

struct Command {
  std::vector<std::string> argv;         // argv[0] is looked up in PATH
  std::vector<std::string> environment;  // NAME=VALUE, on top of ferryd's own
  std::string input;                     // stdin of run(); empty: /dev/null
  std::vector<int> descriptors;          // the program gets these as 3, 4, ...
  bool own_session = false;              // the program leads a new session; else it is in ferryd's
  std::atomic<pid_t>* pid = nullptr;     // run(): its pid while it runs, else 0
};

struct Outcome {
  int status = 0;  // exit status, 128 + signal, or 127 when it could not be started
  std::string out, err;
  bool ok() const { return status == 0; }
};

// Runs a program to its end. The caller ignores SIGPIPE: the program may not read all of its input. After
// `timeout`, `kill` kills the program with all that it has started (status 128 + SIGKILL).
Outcome run(const Command& command, std::chrono::milliseconds timeout = std::chrono::seconds(60),
            const std::function<void(pid_t)>& kill = kill_tree);

// Starts a program in the background, with stdout and stderr appended to `output`, and gives its pid; -errno when it
// cannot be started. The caller waits for it with wait_for().
pid_t start(const Command& command, const std::string& output);

// Waits for a child's end. Gives its exit status, or 128 + signal; 127: there is no such child.
int wait_for(pid_t pid);

// Collects the children that nobody waits for: orphans that the subreaper ferryd inherits. Children
// of start() and adopted ones (adopt_child) are left to their waiters.
void reap_orphans();

// Notes that `pid` will become (or is) a child of ferryd, for which a caller of wait_for() waits.
void adopt_child(pid_t pid);

}  // namespace ferry::host
