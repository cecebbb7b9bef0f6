#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "host/proc/process_facts.h"

// What CRIU cannot move of a program (docs/cannot-move.md): found while the
// program runs, before anything is stopped. Each rule was tried with CRIU 4.2.1. What is in doubt,
// or may be gone in a moment, is no obstacle: then CRIU decides, and if it fails the program goes
// on where it was.
namespace ferry::host {

// What happens to standard input, output and error that lead out of the program (outward.h).
enum class OuterStreams {
  kRuntimes,  // whoever runs the container makes its pipes anew
  kStay,      // nothing: they are an obstacle, and the line names the way out
  kReplaced,  // they get another end at the destination (stdio_file.h); to have none is an obstacle
};

// Gives one line that names the process and what it has that cannot move; empty: no obstacle is
// known. Looks twice at what comes and goes, which may take a moment.
std::string find_obstacle(pid_t root, OuterStreams streams);

// Files and folders that a destination must have under the same names, because processes of the
// tree have them open or mapped: those of processes in ferryd's own mount namespace, up to 1 MiB of
// names. For other processes, whoever makes the program's mounts sees to their files.
std::set<std::string> needed_files(pid_t root);
// Those of `files` that are not on this host.
std::vector<std::string> missing_files(const std::vector<std::string>& files);

// One line: `host` has no `file`, which `program` uses, and the way out if there is one.
std::string missing_file(const std::string& host, const std::string& file,
                         const std::string& program);

// The rules for one descriptor or mapping, in any process. `mounts`: all that CRIU sees. Empty: no
// obstacle.
std::string obstacle_in(const Descriptor& descriptor, const std::set<int>& mounts);
std::string obstacle_in(const Mapping& mapping);

}  // namespace ferry::host
