#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "host/proc/process_tree.h"
#include "played_process.h"

namespace ferry::test {

// A program that was started with this environment, each as NAME=VALUE, for as long as the object lives: then it is
// killed, with the processes that it has started.
class Started {
 public:
  explicit Started(std::vector<std::string> environment,
                   std::vector<std::string> command = {"/bin/sleep", "60"})
      : pid_(begin(pointers(&command), pointers(&environment))) {
    const std::string name = command[0].substr(command[0].rfind('/') + 1);
    std::string variables;
    for (const auto& variable : environment) variables += variable + '\0';
    // A process has the name of the program that it executes before it has its environment.
    EXPECT_TRUE(eventually([&] {
      std::ifstream there("/proc/" + std::to_string(pid_) + "/environ", std::ios::binary);
      const std::string content((std::istreambuf_iterator<char>(there)), {});
      return host::program_name(pid_) == name && content == variables;
    })) << command[0];
  }
  ~Started() {
    for (const pid_t pid : host::process_tree(pid_)) ::kill(pid, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Started(const Started&) = delete;
  pid_t pid() const { return pid_; }

 private:
  static std::vector<char*> pointers(std::vector<std::string>* strings) {
    std::vector<char*> all;
    for (auto& each : *strings) all.push_back(each.data());
    all.push_back(nullptr);
    return all;
  }

  // The child allocates nothing: a thread of the test may have held the allocator's lock.
  static pid_t begin(const std::vector<char*>& command, const std::vector<char*>& environment) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::execve(command[0], command.data(), environment.data());
    ::_exit(1);
  }

  const pid_t pid_;
};

}  // namespace ferry::test
