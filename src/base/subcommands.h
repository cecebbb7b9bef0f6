#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/command_line.h"
#include "base/failure.h"

namespace ferry {

// The subcommands of a program, each with what it does. Options are read after the function that adds the subcommand
// has returned, so that each subcommand shares the ownership of its options.
class Commands {
 public:
  void add(CLI::App* command, std::function<int()> run) {
    all_.emplace_back(command, std::move(run));
  }
  int run() const {
    for (const auto& [command, run] : all_) {
      if (*command) return run();
    }
    throw Failure("no such command; see: ferry --help");
  }

 private:
  std::vector<std::pair<CLI::App*, std::function<int()>>> all_;
};

}  // namespace ferry
