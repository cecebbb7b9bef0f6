#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace ferry::precopy {

// What criu restore --lazy-pages says at its socket of the processes that it restores: of each one its pid, and its
// userfaultfd in a message of its own.
//
//   { pid:32, byte:8 with a descriptor (SCM_RIGHTS) | -1:32 (a zombie has no memory) } "RSTF":32
//
// Each process sends its two messages itself, so that those of another one may come in between: the kernel's word on
// who has sent a message (SCM_CREDENTIALS) says which belong together.
class LazySocket {
 public:
  struct Process {
    std::int32_t pid = 0;  // in its own pid namespace
    UniqueFd userfaultfd;
  };

  // Listens in `directory`, where criu restore looks for it. Throws std::runtime_error.
  explicit LazySocket(const std::string& directory);

  // To be polled: take() does not wait once this is readable. -1: nothing comes any more.
  int descriptor() const;
  // Nothing: no process is complete yet. Throws std::runtime_error: this is not what CRIU says.
  std::optional<Process> take();

 private:
  const UniqueFd listener_;
  UniqueFd connection_;
  bool is_over_ = false;
  std::map<pid_t, std::int32_t>
      announced_;  // what a sender has said that it is; its userfaultfd comes
};

}  // namespace ferry::precopy
