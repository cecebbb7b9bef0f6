#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "host/control/control_server.h"
#include "host/units/lab/container.h"
#include "host/units/runtimes.h"

namespace ferry::host {

// What moves: a process tree with at least one Ferry process in it.
struct Unit {
  std::string name;  // the container's, or the program's
  pid_t root = 0;
  std::optional<Container> container;
  std::vector<FerryProcess> processes;
};

// Where the programs of this host are found.
struct Programs {
  std::string host;  // its name
  const Runtimes& runtimes;
  const ControlServer& control;
};

// `program`: a container's name, a program's name, or a pid. A pid or program in a container means
// the container. `runtime`: whose containers are meant; empty: anybody's. Throws Failure: nothing of
// that name, several, or not started with Ferry.
Unit find_unit(const Programs& programs, const std::string& program,
               const std::string& runtime = {});

// Throws Failure, one line, unless `user` is root or every process of the tree is its own.
void need_owner(uid_t user, const std::string& name, pid_t root);
bool is_owner(uid_t user, pid_t root);

// The registered processes of the tree below `root`.
std::vector<FerryProcess> ferry_processes(const ControlServer& control, pid_t root);

}  // namespace ferry::host
