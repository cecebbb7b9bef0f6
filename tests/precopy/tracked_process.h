#pragma once

#include <sys/types.h>

#include <functional>

namespace ferry::precopy::test {

// A process of its own that does what it is told, step by step, and has given away a userfaultfd.
class TrackedProcess {
 public:
  // `body` runs in the child for each step(); what it returns is step()'s result.
  explicit TrackedProcess(std::function<unsigned long(unsigned long)> body);
  ~TrackedProcess();

  pid_t pid() const { return pid_; }
  int userfaultfd() const { return userfaultfd_; }  // the caller's; -1: this kernel has none
  unsigned long step(unsigned long argument);       // waits
  void begin(unsigned long argument);               // does not
  void halt() const;                                // SIGSTOP, and it stands still

 private:
  struct Shared;
  Shared* shared_;
  pid_t pid_ = 0;
  int userfaultfd_ = -1;
};

}  // namespace ferry::precopy::test
