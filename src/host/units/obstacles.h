#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "host/proc/process_facts.h"

// What CRIU cannot move of a program (docs/containers.md, "What cannot be moved"): found while the
// program runs, before anything is stopped. Each rule was tried with CRIU 4.2.1. Whatever is in
// doubt, or may be gone in a moment, is no obstacle: CRIU decides then, and the program goes on
// where it was.
namespace ferry::host {

// What becomes of standard input, output and error that lead out of the program (outward.h).
enum class OuterStreams {
  kRuntimes,  // whoever runs the container makes its pipes anew
  kStay,      // nobody does: they stand in the way, and the line names the way out
  kReplaced,  // they get another end at the destination (stdio_file.h); to have none is an obstacle
};

// One line that names the process and what it holds; empty when nothing is known that stands in the
// way. What comes and goes is looked at twice, so it may take a moment.
std::string find_obstacle(pid_t root, OuterStreams streams);

// Files and folders that a destination must have under the same names, because the programs of the
// tree have them open or mapped: those in our own mount namespace, up to 1 MiB of names. Others are
// the matter of who makes the program's mounts.
std::set<std::string> needed_files(pid_t root);
// Those of them that are not here.
std::vector<std::string> missing_files(const std::vector<std::string>& files);

// The rules, apart from whose it is. `mounts`: all that CRIU sees. Empty: none.
std::string obstacle_in(const Descriptor& descriptor, const std::set<int>& mounts);
std::string obstacle_in(const Mapping& mapping);

}  // namespace ferry::host
